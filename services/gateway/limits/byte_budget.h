// The memory that requests and answers hold, all together.
#ifndef TANDEM_SERVICES_GATEWAY_LIMITS_BYTE_BUDGET_H_
#define TANDEM_SERVICES_GATEWAY_LIMITS_BYTE_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace tandem::gateway {

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t limit) : limit_(limit) {}

  // Returns false, and takes nothing, if so many bytes are not left.
  bool Take(uint64_t bytes) {
    if (used_.fetch_add(bytes) + bytes <= limit_) return true;
    used_.fetch_sub(bytes);
    return false;
  }
  void GiveBack(uint64_t bytes) { used_.fetch_sub(bytes); }
  uint64_t used() const { return used_; }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
};

// What one exchange holds, from the first byte of its body until its answer is written. Each
// exchange has a share of its own, and only what goes beyond it is taken from the budget, so that
// large bodies cannot keep small ones out.
class ByteLease {
 public:
  // A lease without a budget counts, and refuses nothing.
  ByteLease() = default;
  ByteLease(ByteBudget* budget, uint64_t share) : budget_(budget), share_(share) {}
  ~ByteLease() { GiveBack(); }
  ByteLease(ByteLease&& other) noexcept { *this = std::move(other); }
  ByteLease& operator=(ByteLease&& other) noexcept {
    if (this == &other) return *this;
    GiveBack();
    budget_ = other.budget_;
    share_ = other.share_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // Returns false, and takes nothing, if so many bytes are not left.
  bool Take(uint64_t bytes) {
    const uint64_t more = Beyond(bytes_ + bytes) - Beyond(bytes_);
    if (budget_ != nullptr && more > 0 && !budget_->Take(more)) return false;
    bytes_ += bytes;
    return true;
  }
  void GiveBack() {
    if (budget_ != nullptr) budget_->GiveBack(Beyond(bytes_));
    bytes_ = 0;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t Beyond(uint64_t bytes) const { return bytes - std::min(bytes, share_); }

  ByteBudget* budget_ = nullptr;
  uint64_t share_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_LIMITS_BYTE_BUDGET_H_
