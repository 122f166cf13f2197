// SIGTERM and SIGINT as events of a completion queue.
#ifndef TANDEM_SERVICES_ROUTER_SIGNAL_WATCHER_H_
#define TANDEM_SERVICES_ROUTER_SIGNAL_WATCHER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/rpc/async_tag.h"

namespace tandem {

// Blocks both signals in the calling thread and in those that it starts later: make it before any other thread.
class SignalMask {
 public:
  SignalMask();
};

// A thread that waits for the signals and posts each to the queue.
class SignalWatcher {
 public:
  // `on_signal` runs on the thread that polls `queue`. PRECOND: a SignalMask was made.
  SignalWatcher(grpc::CompletionQueue* queue, std::function<void()> on_signal);
  // Stops the thread. Before the queue is shut down; posted events must still be polled.
  void Stop();
  ~SignalWatcher() { Stop(); }

 private:
  void Watch();
  void OnAlarm(bool ok);

  grpc::CompletionQueue* queue_;
  std::function<void()> on_signal_;
  MemberTag<SignalWatcher> tag_{this, &SignalWatcher::OnAlarm};
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<grpc::Alarm>> alarms_;  // one for each signal, kept until the end
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SIGNAL_WATCHER_H_
