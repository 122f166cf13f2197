// Compares the speed of two groups of requests, each with draft models of its own.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_SPEED_COMPARISON_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_SPEED_COMPARISON_H_

#include <array>
#include <cstdint>
#include <optional>

#include "services/router/drafting/roster/draft_roster.h"

namespace tandem {

// The mean and the scatter of logarithms, in one pass (Welford 1962; sums of two: Chan et al.
// 1979).
class LogSample {
 public:
  void Add(double value);
  LogSample& operator+=(const LogSample& other);

  uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  // The variance of a single value. 0 for fewer than two values.
  double variance() const { return count_ < 2 ? 0 : squares_ / static_cast<double>(count_ - 1); }

 private:
  uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // sum over the distances from the mean
};

struct SpeedRatio {
  double ratio = 1;
  double low = 1;  // ends of the interval that has the true ratio with a probability of 95 %
  double high = 1;
};

class SpeedComparison {
 public:
  // Requests of a group before a ratio is stated.
  static constexpr uint64_t kLeastRequests = 5;

  // A request of the arm was decoded with this time for each token after the first. Arm kNone and
  // times that are not positive count for nothing.
  void Add(DraftArm arm, double seconds_per_token);
  SpeedComparison& operator+=(const SpeedComparison& other);

  uint64_t num_requests(DraftArm arm) const { return samples_[Index(arm)].count(); }
  // The canary's tokens per second over those of the models that serve: the ratio of geometric
  // means over requests, with Welch's interval. None: a group has too few requests.
  std::optional<SpeedRatio> Ratio() const;

 private:
  static size_t Index(DraftArm arm) { return arm == DraftArm::kCanary ? 1 : 0; }

  std::array<LogSample, 2> samples_;  // logarithms of seconds per token
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_SPEED_COMPARISON_H_
