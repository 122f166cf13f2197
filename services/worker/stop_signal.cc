#include "services/worker/stop_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

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

void StopSignal::Set(std::function<void()> stop, std::function<void()> before_exit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stop_ = std::move(stop);
  before_exit_ = std::move(before_exit);
}

void StopSignal::Run() {
  pollfd fds[2] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                   {.fd = done_.get(), .events = POLLIN, .revents = 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  if (fds[1].revents != 0) return;
  std::function<void()> stop;
  std::function<void()> before_exit;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_) std::_Exit(0);
    stop = stop_;
    before_exit = before_exit_;
  }
  std::thread stopping(stop);
  if (poll(&fds[1], 1, kGraceMilliseconds) == 0) {
    before_exit();
    std::_Exit(0);
  }
  stopping.join();
}

}  // namespace tandem
