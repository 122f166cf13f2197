// A bell that any thread rings, and that the thread which polls a completion queue hears.
#ifndef TANDEM_SERVICES_WORKER_SESSION_QUEUE_BELL_H_
#define TANDEM_SERVICES_WORKER_SESSION_QUEUE_BELL_H_

#include <grpc/support/time.h>
#include <grpcpp/completion_queue.h>

#include <functional>
#include <mutex>
#include <utility>

#include "services/worker/session/queue_alarm.h"

namespace tandem {

// The function that hears the bell runs on the thread that polls the queue, once or more after each
// ring. The queue must be polled until the bell was closed and does not sound any more.
class QueueBell {
 public:
  QueueBell(grpc::CompletionQueue* queue, std::function<void()> on_ring)
      : queue_(queue), on_ring_(std::move(on_ring)) {}

  // Any thread may call this function. Does nothing after Close.
  void Ring() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_ || sounds_) return;
    sounds_ = true;
    alarm_.Set(queue_, gpr_now(GPR_CLOCK_MONOTONIC));
  }
  // A ring that was not heard yet is still heard.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  // It was rung, and was not heard yet.
  bool sounds() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sounds_;
  }

 private:
  void OnHeard() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      sounds_ = false;
    }
    on_ring_();
  }

  grpc::CompletionQueue* queue_;
  std::function<void()> on_ring_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  bool sounds_ = false;
  QueueAlarm alarm_{[this] { OnHeard(); }};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_QUEUE_BELL_H_
