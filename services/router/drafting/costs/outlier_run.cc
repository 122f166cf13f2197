#include "services/router/drafting/costs/outlier_run.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Lengths of runs that are a new level: below the expected cost, above it with times that agree,
// and above it with any times.
constexpr uint32_t kLevelBelow = 2;
constexpr uint32_t kAgreeingLevelAbove = 4;
constexpr uint32_t kLevelAbove = 12;
// Times agree if the logarithm of the longest over the shortest is below this number, or below the
// distance at which a measurement is an outlier.
constexpr double kAgreement = 0.5;
// An interruption counts with at most this many times the expected seconds, plus these seconds. A
// machine that was stopped for seconds does not interrupt like this again soon.
constexpr double kLongestInterruption = 20;
constexpr double kLongestInterruptionSeconds = 0.02;

}  // namespace

OutlierRun::Result OutlierRun::End() {
  const Result result{.interrupted_seconds = interrupted_seconds_};
  *this = OutlierRun();
  return result;
}

OutlierRun::Result OutlierRun::AddExpected(uint32_t rows) {
  return rows >= least_rows_ && rows <= most_rows_ ? End() : Result();
}

OutlierRun::Result OutlierRun::AddOutlier(uint32_t rows, double surprise, double limit,
                                          double expected_seconds) {
  Result result;
  if (length_ > 0 && (surprise > 0) != (nearest_ > 0)) result = End();
  if (length_++ == 0) {
    nearest_ = farthest_ = surprise;
    least_rows_ = most_rows_ = rows;
  }
  least_rows_ = std::min(least_rows_, rows);
  most_rows_ = std::max(most_rows_, rows);
  if (std::abs(surprise) < std::abs(nearest_)) nearest_ = surprise;
  if (std::abs(surprise) > std::abs(farthest_)) farthest_ = surprise;
  const bool agree = std::abs(farthest_ - nearest_) < std::max(limit, kAgreement);
  const bool is_level = surprise < 0 ? length_ >= kLevelBelow
                                     : length_ >= (agree ? kAgreeingLevelAbove : kLevelAbove);
  if (is_level) {
    result.new_level = nearest_;
    *this = OutlierRun();
  } else if (surprise > 0) {
    interrupted_seconds_ +=
        std::min(expected_seconds * std::expm1(surprise),
                 kLongestInterruption * expected_seconds + kLongestInterruptionSeconds);
  }
  return result;
}

}  // namespace tandem
