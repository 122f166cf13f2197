// An alarm of a completion queue.
#ifndef TANDEM_SERVICES_WORKER_SESSION_QUEUE_ALARM_H_
#define TANDEM_SERVICES_WORKER_SESSION_QUEUE_ALARM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <functional>
#include <utility>

#include "common/rpc/async_tag.h"

namespace tandem {

// Calls a function on the thread that polls the queue, when the time has come or the alarm is
// canceled. The queue must outlive an alarm that is set, and its tag must be polled.
class QueueAlarm {
 public:
  explicit QueueAlarm(std::function<void()> on_end) : on_end_(std::move(on_end)) {}

  // Any thread may call this function. PRECOND: it is not set.
  void Set(grpc::CompletionQueue* queue, gpr_timespec at) {
    is_set_ = true;
    alarm_.Set(queue, at, tag_.get());
  }
  void Cancel() { alarm_.Cancel(); }
  bool is_set() const { return is_set_; }

 private:
  void OnEnd(bool /*ok*/) {
    is_set_ = false;
    on_end_();
  }

  std::function<void()> on_end_;
  grpc::Alarm alarm_;
  // Atomic, because Stop of a server sets its alarm on another thread than that which polls.
  std::atomic<bool> is_set_ = false;
  MemberTag<QueueAlarm> tag_{this, &QueueAlarm::OnEnd};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_QUEUE_ALARM_H_
