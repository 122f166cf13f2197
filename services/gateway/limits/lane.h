// Lets one long piece of work run after the other.
#ifndef TANDEM_SERVICES_GATEWAY_LIMITS_LANE_H_
#define TANDEM_SERVICES_GATEWAY_LIMITS_LANE_H_

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace tandem::gateway {

// A large body takes a thread for tens of milliseconds. With one of them at a time, the other
// threads are left for everybody else. Thread-safe.
class Lane {
 public:
  // Calls `begin` when it is its turn: now, or during a Leave of another one. It does not work
  // itself, and arranges that Leave is called after the work.
  void Enter(std::function<void()> begin) {
    {
      const std::lock_guard lock(mutex_);
      if (is_taken_) return waiting_.push_back(std::move(begin));
      is_taken_ = true;
    }
    begin();
  }

  void Leave() {
    std::function<void()> next;
    {
      const std::lock_guard lock(mutex_);
      is_taken_ = !waiting_.empty();
      if (!is_taken_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool is_taken_ = false;                      // guarded by mutex_
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_LIMITS_LANE_H_
