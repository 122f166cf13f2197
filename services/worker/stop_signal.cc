#include "services/worker/stop_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace tandem {
namespace {

constexpr int kGraceMilliseconds = 1000;

}  // namespace

StopSignal::StopSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_ = UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC));
  done_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  thread_ = std::thread([this] { Run(); });
}

StopSignal::~StopSignal() {
  eventfd_write(done_.get(), 1);
  thread_.join();
}

void StopSignal::Set(Actions actions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  actions_ = std::move(actions);
}

void StopSignal::Run() {
  pollfd fds[2] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                   {.fd = done_.get(), .events = POLLIN, .revents = 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  if (fds[1].revents != 0) return;
  Actions actions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!actions_.stop) std::_Exit(0);
    actions = actions_;
  }
  std::thread stopping(actions.stop);
  if (actions.patience.count() > 0) {
    signalfd_siginfo first;
    if (read(signals_.get(), &first, sizeof(first)) != sizeof(first)) std::_Exit(1);
    poll(fds, 2, static_cast<int>(actions.patience.count()));
  }
  actions.hurry();
  if (poll(&fds[1], 1, kGraceMilliseconds) == 0) {
    actions.before_exit();
    std::_Exit(0);
  }
  stopping.join();
}

}  // namespace tandem
