// Hands work from any thread to the thread that runs it.
#ifndef TANDEM_BENCH_SUPPORT_EVENT_QUEUE_H_
#define TANDEM_BENCH_SUPPORT_EVENT_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace tandem::bench {

class EventQueue {
 public:
  using Event = std::function<void()>;

  void Push(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    there_is_one_.notify_one();
  }

  // Returns the oldest event, or nothing if `until` passes first.
  std::optional<Event> Pop(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    if (!there_is_one_.wait_until(lock, until, [this] { return !events_.empty(); })) {
      return std::nullopt;
    }
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_is_one_;
  std::deque<Event> events_;  // guarded by mutex_
};

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_EVENT_QUEUE_H_
