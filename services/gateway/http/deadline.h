// One deadline that often moves.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_DEADLINE_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_DEADLINE_H_

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace tandem::gateway {

// Moving the deadline to a later time costs nothing: the timer runs on, and looks at the deadline
// when it fires. So a stream of hundreds of writes per second needs few timers. Everything happens
// on the executor.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `passed` is called each time that the deadline passes. It may use the owner.
  Deadline(const boost::asio::any_io_executor& executor, std::function<void()> passed)
      : timer_(executor), passed_(std::move(passed)) {}

  // The timer keeps `owner`, which has this object as a member, alive until it fires or is stopped.
  void Set(double seconds, std::shared_ptr<void> owner) {
    at_ = Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    if (!runs_ || at_ < fires_at_) Wait(std::move(owner));
  }
  void Clear() { at_ = Clock::time_point::max(); }
  void Stop() {
    Clear();
    runs_ = false;
    timer_.cancel();
  }

 private:
  void Wait(std::shared_ptr<void> owner) {
    runs_ = true;
    fires_at_ = at_;
    timer_.expires_at(at_);
    timer_.async_wait([this, owner = std::move(owner)](const auto& error) mutable {
      if (error || !runs_) return;
      if (at_ != Clock::time_point::max() && Clock::now() < at_) return Wait(std::move(owner));
      runs_ = false;
      if (at_ == Clock::time_point::max()) return;
      Clear();
      passed_();
    });
  }

  boost::asio::steady_timer timer_;
  const std::function<void()> passed_;
  Clock::time_point at_ = Clock::time_point::max();
  Clock::time_point fires_at_;
  bool runs_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_DEADLINE_H_
