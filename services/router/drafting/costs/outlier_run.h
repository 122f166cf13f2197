// Tells a changed cost from interruptions, by consecutive measurements far from the expected cost.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_OUTLIER_RUN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_OUTLIER_RUN_H_

#include <cstdint>

namespace tandem {

// Other work on the machine interrupts a batch. An interruption only makes a batch longer, and by a
// time that varies. A changed cost makes all batches longer or shorter, by a similar factor. A run
// of outliers in one direction is therefore a new level of the cost if
//   - a few are below the expected cost,
//   - or some more are above it and agree with each other,
//   - or many are above it, because a batch that is always interrupted costs that much.
// Otherwise, the outliers above the expected cost were interruptions.
//
// A run has a range of rows. A measurement as expected ends the run only if its rows are in this
// range, because the cost of other rows says nothing about it.
class OutlierRun {
 public:
  struct Result {
    // Logarithm of the new level over the expected cost. 0: the level is not new.
    double new_level = 0;
    // Seconds that the interruptions of a run took. The run ended with this measurement.
    double interrupted_seconds = 0;
  };

  // A measurement of `rows` rows was near the expected cost.
  Result AddExpected(uint32_t rows);
  // A measurement was farther away than `limit` (> 0). `surprise` is the logarithm of the measured
  // seconds over the expected seconds.
  Result AddOutlier(uint32_t rows, double surprise, double limit, double expected_seconds);
  // Ends the run without a measurement.
  Result End();

 private:
  uint32_t length_ = 0;
  uint32_t least_rows_ = 0;
  uint32_t most_rows_ = 0;
  double nearest_ = 0;  // the surprises that are nearest to 0 and farthest from 0
  double farthest_ = 0;
  double interrupted_seconds_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_OUTLIER_RUN_H_
