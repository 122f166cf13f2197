// Learns the seconds that a batch takes, as a function of its rows, from noisy measurements.
//
// The class is a Kalman filter over log seconds at fixed numbers of rows, which are called nodes.
// (Rasmussen and Williams 2006, chapter 2, describe the same model as regression.) Before any
// measurement, it assumes an unknown level, a gentle slope, and similar costs for similar numbers
// of rows. A measurement moves its own node most, the neighbors less, and the level of all nodes a
// little. If the machine slows down or contexts grow, nodes that are not measured at the moment
// therefore move too. Each round adds a little uncertainty. Old measurements thus fade, and a node
// without recent measurements becomes uncertain.
//
// Besides its rows, a batch has a cost for each position that a row attends to. This cost is
// learned from batches with different contexts. A measurement far above the curve does not change
// it, because the batch was interrupted, unless a run of them shows that the level is new (see
// OutlierRun). The resulting table is made non-decreasing in rows.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_COST_CURVE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_COST_CURVE_H_

#include <array>
#include <cstdint>
#include <span>

#include "services/router/drafting/costs/outlier_run.h"

namespace tandem {

// Seconds at some numbers of rows, with linear interpolation between them.
class CostTable {
 public:
  static constexpr std::array<uint32_t, 28> kRows = {1,  2,  3,   4,   5,   6,   7,   8,   10, 12,
                                                     14, 16, 20,  24,  28,  32,  40,  48,  56, 64,
                                                     80, 96, 128, 192, 256, 384, 512, 1024};

  // Returns 0 for 0 rows. After the last node, each further row adds the same cost.
  double Seconds(uint32_t rows) const;

  // Returns these costs with `seconds` more for 1 to 1024 rows. More rows add in proportion.
  CostTable Plus(double seconds) const;

  // Returns the largest |log ratio| of the two tables at any number of rows.
  double Distance(const CostTable& other) const;

 private:
  friend class CostCurve;
  // The weights of the two nodes around `rows`. After the last node, only this node has a weight,
  // and `scale` is the ratio of `rows` to the node's rows.
  struct Place {
    size_t low;
    double weight_high;
    double scale;
  };
  static Place Find(uint32_t rows);

  std::array<double, kRows.size()> seconds_{};
};

class CostCurve {
 public:
  // Before any measurement, the cost is assumed to have doubled at `doubling_rows` rows. The
  // logarithm of the shape is assumed to be known with a standard deviation of `shape_error`.
  CostCurve(double doubling_rows, double shape_error);

  // Call this function once for each round.
  void Age() {
    ++age_;
    ++outlier_age_;
  }
  // `passes` ran one after the other and took `seconds`. Each entry is the number of rows (>= 1) of
  // a pass. Their rows attended to `attended` positions in all. `noise` multiplies the variance of
  // the measurement. It is > 1 for a measurement that fits the model less well than others. Returns
  // the seconds for which the latest measurements were interrupted, once it is known that their
  // cost did not change. They are 0 for most measurements. Seconds of 0 or less are ignored.
  double Observe(std::span<const uint32_t> passes, double seconds, double noise = 1,
                 double attended = 0);
  double Observe(uint32_t rows, double seconds, double noise = 1, double attended = 0) {
    return Observe(std::span(&rows, 1), seconds, noise, attended);
  }

  // Returns the expected seconds, which are non-decreasing.
  const CostTable& table() const { return table_; }
  // Returns costs that are this many standard deviations below the expected ones.
  CostTable Optimistic(double deviations) const;
  double Seconds(uint32_t rows) const { return table_.Seconds(rows); }
  // Returns the seconds that a row takes for each position that it attends to.
  double SecondsAttended() const { return seconds_attended_; }
  // Returns the standard deviation of log Seconds(rows), which is a relative error.
  double Error(uint32_t rows) const;
  // Returns the number of measurements, without those that were interrupted.
  uint64_t num_observations() const { return num_observations_; }
  // Returns how often the level was new.
  uint64_t num_new_levels() const { return num_new_levels_; }

 private:
  static constexpr size_t kNodes = CostTable::kRows.size();
  // The estimated states: the nodes, and the cost of attending in units that follow the level.
  static constexpr size_t kStates = kNodes + 1;
  using Vector = std::array<double, kStates>;

  double LogSeconds(uint32_t rows) const;
  double NodeError(size_t node) const;
  double LevelDrift() const;  // the drift since the last measurement
  void AddUncertainty(double level_variance, double shape_factor);
  double AttentionUnit() const;  // seconds
  // Returns the expected seconds of the passes and of attending. Adds to `slope` the derivatives of
  // their logarithm by the states.
  double Linearize(std::span<const uint32_t> passes, double attended, Vector* slope) const;
  // Returns the variance of the logarithm of `slope` times the states.
  double Variance(const Vector& slope) const;
  void MakeMonotone();

  std::array<double, kNodes> log_seconds_;
  double attention_;             // for each attended position, in AttentionUnit, >= 0
  double attended_per_row_ = 0;  // mean over the latest batches
  std::array<Vector, kStates> covariance_;
  std::array<std::array<double, kNodes>, kNodes> shape_covariance_;
  CostTable table_;
  double seconds_attended_ = 0;
  double noise_variance_;  // variance of one measurement's logarithm
  double age_ = 0;         // rounds since the last measurement
  OutlierRun outliers_;
  double outlier_age_ = 0;  // rounds since the last outlier
  uint64_t num_observations_ = 0;
  uint64_t num_new_levels_ = 0;
  int num_levels_in_a_row_ = 0;  // new levels that followed each other soon
  uint64_t observations_at_new_level_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_COST_CURVE_H_
