// Limits on what clients of the gateway may take.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_HTTP_LIMITS_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_HTTP_LIMITS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tandem::gateway {

// The table of flags (common/flags) has the defaults.
struct HttpLimits {
  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 8 << 20;
  uint64_t all_body_bytes = 256 << 20;  // bodies that arrive at the same time, all together
  int connections = 4096;
  double request_seconds = 30;  // for a whole request to arrive, from its first byte on
  double idle_seconds = 75;     // for the first byte of a request
  double write_seconds = 30;    // for a client to take a piece of an answer
};

// The bytes that bodies hold while they arrive. Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(uint64_t limit) : limit_(limit) {}

  // Returns false, and takes nothing, if so many bytes are not left.
  bool Take(uint64_t bytes) {
    if (used_.fetch_add(bytes) + bytes <= limit_) return true;
    used_.fetch_sub(bytes);
    return false;
  }
  void GiveBack(uint64_t bytes) { used_.fetch_sub(bytes); }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_HTTP_LIMITS_H_
