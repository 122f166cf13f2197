// The latencies of the last seconds, for the live page: quantiles of a sliding window.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_LATENCY_WINDOW_H_
#define TANDEM_SERVICES_ROUTER_WATCH_LATENCY_WINDOW_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem {

// Seconds that a request took.
enum class Latency : uint8_t {
  kQueue,       // from its arrival until it had a slot
  kFirstToken,  // from its arrival to its first token
  kPerToken,    // from one token to the next, as the mean of a finished request
  kTotal,       // from its arrival to its last token
};
inline constexpr size_t kNumLatencies = 4;

struct LatencyQuantiles {
  uint64_t num_samples = 0;
  double p50 = 0;  // seconds; 0 without samples
  double p95 = 0;
  double p99 = 0;
};

// Counts latencies in buckets whose limits grow by a tenth, so a quantile is off by 5 % at most.
class LatencyWindow {
 public:
  static constexpr size_t kSteps = 20;

  void Add(Latency kind, double seconds);
  // Ends a step. The window holds the step under way and kSteps - 1 steps before it.
  void Advance();
  LatencyQuantiles Quantiles(Latency kind) const;

 private:
  static constexpr double kLeastSeconds = 1e-5;
  static constexpr double kGrowth = 1.1;
  static constexpr size_t kBuckets = 218;  // up to 10^4 s
  using Counts = std::array<uint32_t, kBuckets>;

  std::array<std::array<Counts, kNumLatencies>, kSteps> steps_{};
  size_t now_ = 0;  // index of the step under way
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_LATENCY_WINDOW_H_
