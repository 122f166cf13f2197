// A worker that was told to stop, and ends what is under way first.
#ifndef TANDEM_SERVICES_WORKER_DRAIN_H_
#define TANDEM_SERVICES_WORKER_DRAIN_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tandem {

// Any method, by any thread.
class Drain {
 public:
  // Routers hear of it with their next pong, and bring nothing new while another pod can take it.
  // Returns when no slot is open, or after Hurry.
  void Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    begun_ = true;
    changed_.wait(lock, [this] { return hurried_ || num_open_slots_ == 0; });
  }
  // It took long enough: also before Await.
  void Hurry() {
    const std::lock_guard<std::mutex> lock(mutex_);
    hurried_ = true;
    changed_.notify_all();
  }
  void SetOpenSlots(uint32_t num_open_slots) {
    const std::lock_guard<std::mutex> lock(mutex_);
    num_open_slots_ = num_open_slots;
    if (begun_) changed_.notify_all();
  }
  bool begun() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return begun_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t num_open_slots_ = 0;
  bool begun_ = false;
  bool hurried_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_DRAIN_H_
