// Whether a request arrives fast enough.
#ifndef TANDEM_SERVICES_GATEWAY_LIMITS_BODY_PACE_H_
#define TANDEM_SERVICES_GATEWAY_LIMITS_BODY_PACE_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "services/gateway/limits/http_limits.h"

namespace tandem::gateway {

// A request has a time in which it must be whole. A body that holds more than its exchange's share
// must also bring so many bytes in each window of time, so that a client that stalls does not hold
// them until the time is over. Times are in seconds of any clock.
class BodyPace {
 public:
  explicit BodyPace(const HttpLimits& limits) : limits_(limits) {}

  // A request begins. Returns the seconds until the first look.
  double Begin(double now) {
    end_ = now + limits_.request_seconds;
    bytes_ = 0;
    return ToNextLook(now);
  }

  // Looks at a body that has so many bytes by now. Returns the seconds until the next look, and
  // nothing if the request is late.
  std::optional<double> Look(double now, uint64_t bytes) {
    const double want = limits_.body_rate * limits_.body_window_seconds;
    const bool stalls =
        bytes > limits_.share_bytes && static_cast<double>(bytes - std::min(bytes, bytes_)) < want;
    if (stalls || now >= end_) return std::nullopt;
    bytes_ = bytes;
    return ToNextLook(now);
  }

 private:
  double ToNextLook(double now) const {
    return std::max(0.0, std::min(limits_.body_window_seconds, end_ - now));
  }

  const HttpLimits& limits_;
  double end_ = 0;
  uint64_t bytes_ = 0;  // at the last look
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_LIMITS_BODY_PACE_H_
