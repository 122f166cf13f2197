// The drain of a worker: a worker that was told to stop first finishes the open slots.
#ifndef TANDEM_SERVICES_WORKER_SESSION_DRAIN_H_
#define TANDEM_SERVICES_WORKER_SESSION_DRAIN_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tandem {

// Thread-safe.
class Drain {
 public:
  // Begins the drain. Routers learn of the drain from their next pong, and send no new request
  // while another pod can take it. Returns when no slot is open, or after Hurry.
  void Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    begun_ = true;
    changed_.wait(lock, [this] { return hurried_ || num_open_slots_ == 0; });
  }
  // Ends the wait of Await. May be called before Await.
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

#endif  // TANDEM_SERVICES_WORKER_SESSION_DRAIN_H_
