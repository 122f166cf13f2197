// SIGTERM and SIGINT as events of a completion queue.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_SIGNAL_WATCHER_H_
#define TANDEM_SERVICES_ROUTER_SERVER_SIGNAL_WATCHER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/rpc/async_tag.h"

namespace tandem {

// Blocks both signals in the calling thread and in the threads that it starts later. The object is
// made before any other thread starts.
class SignalMask {
 public:
  SignalMask();
};

// A thread that waits for the signals and posts each signal to the queue.
class SignalWatcher {
 public:
  // `on_signal` gets the signal's number and runs on the thread that polls `queue`. PRECOND: a
  // SignalMask was made.
  SignalWatcher(grpc::CompletionQueue* queue, std::function<void(int)> on_signal);
  // Stops the thread. Called before the queue is shut down. Posted events must still be polled.
  void Stop();
  ~SignalWatcher() { Stop(); }

 private:
  // One signal on its way through the queue. The watcher keeps the object until its own end.
  struct Posted {
    Posted(SignalWatcher* owner, int number) : watcher(owner), signal_number(number) {}
    void OnAlarm(bool ok) {
      if (ok) watcher->on_signal_(signal_number);
    }
    SignalWatcher* watcher;
    int signal_number;
    grpc::Alarm alarm;
    MemberTag<Posted> tag{this, &Posted::OnAlarm};
  };
  void Watch();

  grpc::CompletionQueue* queue_;
  std::function<void(int)> on_signal_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Posted>> posted_;
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_SIGNAL_WATCHER_H_
