// Seconds that a batch takes as a function of its rows, learned from noisy measurements.
//
// A Kalman filter over log seconds at fixed numbers of rows (Rasmussen and Williams 2006, chapter
// 2, is the same thing seen as regression): before anything is measured all that is assumed is a
// level that may be anything, a gentle slope, and that near numbers of rows cost alike. A
// measurement moves its own place most, its neighbors less, and the level of all a little, so that
// a machine that slows down or contexts that grow carry along what is not measured at the moment.
// Each round adds a little uncertainty: old measurements fade, and places not seen for long are
// known to be uncertain. Beside its rows a batch costs so much for each position that one of them
// attends to, which is learned from batches whose contexts differ. Outliers pull with limited
// force, but three in a row in one direction are a new level. What is read is made non-decreasing
// in rows.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_COST_CURVE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_COST_CURVE_H_

#include <array>
#include <cstdint>
#include <span>

namespace tandem {

// Seconds at some numbers of rows, and in a straight line between them.
class CostTable {
 public:
  static constexpr std::array<uint32_t, 28> kRows = {1,  2,  3,   4,   5,   6,   7,   8,   10, 12,
                                                     14, 16, 20,  24,  28,  32,  40,  48,  56, 64,
                                                     80, 96, 128, 192, 256, 384, 512, 1024};

  // 0 for 0 rows; past the last number of rows each costs the same.
  double Seconds(uint32_t rows) const;

  // The largest |log ratio| of the two at any number of rows.
  double Distance(const CostTable& other) const;

 private:
  friend class CostCurve;
  // Weights of the two nodes around `rows`; past the last one, that one alone, and `scale` rows for
  // each of its own.
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
  // Before anything is measured, the cost is believed to have doubled at `doubling_rows` rows, and
  // the logarithm of its shape to be known within `shape_error` (a standard deviation).
  CostCurve(double doubling_rows, double shape_error);

  // A round went by.
  void Age() { ++age_; }
  // `seconds` were measured for passes of so many rows (>= 1), one after the other, that attended
  // to so many positions, each counted for every row that did. `noise` > 1: by how much worse than
  // others the measurement fits.
  void Observe(std::span<const uint32_t> passes, double seconds, double noise = 1,
               double attended = 0);
  void Observe(uint32_t rows, double seconds, double noise = 1, double attended = 0) {
    Observe(std::span(&rows, 1), seconds, noise, attended);
  }

  // Expected seconds, non-decreasing.
  const CostTable& table() const { return table_; }
  // As low as they may be: by so many standard deviations.
  CostTable Optimistic(double deviations) const;
  double Seconds(uint32_t rows) const { return table_.Seconds(rows); }
  // That a row takes for each position that it attends to.
  double SecondsAttended() const { return seconds_attended_; }
  // Standard deviation of log Seconds(rows): a relative error.
  double Error(uint32_t rows) const;
  uint64_t num_observations() const { return num_observations_; }

 private:
  static constexpr size_t kNodes = CostTable::kRows.size();
  // What is estimated: the nodes, and what attending costs, in units that follow the level.
  static constexpr size_t kStates = kNodes + 1;
  using Vector = std::array<double, kStates>;

  double LogSeconds(uint32_t rows) const;
  double NodeError(size_t node) const;
  double LevelDrift() const;  // since the last measurement
  void AddUncertainty(double level_variance, double shape_factor);
  double AttentionUnit() const;  // seconds
  // Variance of the logarithm of `slope` times the states.
  double Variance(const Vector& slope) const;
  void MakeMonotone();

  std::array<double, kNodes> log_seconds_;
  double attention_;             // in AttentionUnit, for each position attended to, >= 0
  double attended_per_row_ = 0;  // mean of the latest batches
  std::array<Vector, kStates> covariance_;
  std::array<std::array<double, kNodes>, kNodes> shape_covariance_;
  CostTable table_;
  double seconds_attended_ = 0;
  double noise_variance_;  // variance of one measurement's logarithm
  double age_ = 0;         // rounds since the last measurement
  int outliers_ = 0;       // in a row in one direction, signed
  uint64_t num_observations_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_COST_CURVE_H_
