// Tells a changed cost from interruptions, by consecutive measurements far from the expected cost.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_OUTLIER_RUN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_OUTLIER_RUN_H_

#include <cstdint>

namespace tandem {

// Other work on the machine interrupts a batch. An interruption only makes a batch longer, and by a
// time that varies. A changed cost makes all batches longer or shorter, by a similar factor. A run
// of outliers in one direction is therefore a new level of the cost if
//   - two are below the expected cost,
//   - or four above it agree with each other,
//   - or twelve are above it, because a batch that is always interrupted costs that much.
// Otherwise, the outliers above the expected cost were interruptions.
class OutlierRun {
 public:
  struct Result {
    // Logarithm of the new level over the expected cost. 0: the level is not new.
    double new_level = 0;
    // Time that the interruptions of a run took which ended with this measurement.
    double interrupted_seconds = 0;
  };

  // Adds a measurement that is not far from the expected cost.
  Result End();
  // Adds a measurement that is farther away than `limit` (> 0). `surprise` is the logarithm of the
  // measured seconds over the expected seconds.
  Result Add(double surprise, double limit, double expected_seconds);

 private:
  uint32_t length_ = 0;
  double nearest_ = 0;  // the surprises that are nearest to 0 and farthest from 0
  double farthest_ = 0;
  double interrupted_seconds_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_OUTLIER_RUN_H_
