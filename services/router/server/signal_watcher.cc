#include "services/router/server/signal_watcher.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace tandem {
namespace {

constexpr int kStopSignal = SIGUSR1;  // signal that Stop sends to the thread
constexpr size_t kMaxSignals = 16;    // more are ignored: a repeated signal already ends the drain

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, kStopSignal);
  return signals;
}

}  // namespace

SignalMask::SignalMask() {
  const sigset_t signals = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

SignalWatcher::SignalWatcher(grpc::CompletionQueue* queue, std::function<void(int)> on_signal)
    : queue_(queue), on_signal_(std::move(on_signal)), thread_([this] { Watch(); }) {}

void SignalWatcher::Watch() {
  const sigset_t signals = WatchedSignals();
  while (true) {
    int number = 0;
    sigwait(&signals, &number);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    if (number == kStopSignal || posted_.size() == kMaxSignals) continue;
    posted_.push_back(std::make_unique<Posted>(this, number));
    posted_.back()->alarm.Set(queue_, gpr_now(GPR_CLOCK_MONOTONIC), posted_.back()->tag.get());
  }
}

void SignalWatcher::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), kStopSignal);
  thread_.join();
}

}  // namespace tandem
