#include "services/router/drafting/costs/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem {
namespace {

// ---------------------------------------------------------------- the belief before measurements

// Variance of the logarithm of the level. It is so large that any level is possible.
constexpr double kUnknownLevel = 25;
// Distance, in octaves (doublings) of rows, over which costs are similar.
constexpr double kOctaves = 2.5;
// Share of the shape's variance that is rough: a cost may jump from one number of rows to the next.
constexpr double kRoughShare = 0.06;
// Time to attend to one position, as a share of the time of a pass of one row. The second constant
// is its variance in these units, which is also so large that any value is possible.
constexpr double kAttentionUnit = 1e-4;
constexpr double kUnknownAttention = 25;

// ---------------------------------------------------------------- aging

// Variance that one round adds to the level's logarithm: a drift of 1%.
constexpr double kLevelDrift = 1e-4;
// The same for a round without a measurement: 3%. More may change while nothing is measured.
constexpr double kUnseenLevelDrift = 1e-3;
// One round adds this share of the shape's initial variance.
constexpr double kShapeDrift = 2e-4;
// Aging adds nothing if the variance of the level's logarithm is above this number.
constexpr double kMostUncertain = 1;

// ---------------------------------------------------------------- measurements

// Variance of the logarithm of one measurement: the initial value (a standard deviation of 14%),
// and the range of learned values (2% to 50%).
constexpr double kInitialNoise = 0.02;
constexpr double kLeastNoise = 0.0004;
constexpr double kMostNoise = 0.25;
// Number of measurements over which this variance is learned.
constexpr double kNoiseMemory = 30;
// A measurement farther away than this many standard deviations is an outlier. Unless it completes
// a run that is a new level, an outlier below the curve pulls like a measurement at this distance,
// and an outlier above the curve was interrupted and does not pull.
constexpr double kOutlier = 3;
// A run of outliers ends if this many rounds had none.
constexpr double kLongestOutlierAge = 50;
// Share of the shape's initial variance that a new level adds, unless it is the last one of
// kLevelsOfNewShape levels between which there were at most kQuietMeasurements measurements.
constexpr double kShapeOfNewLevel = 0.03;
constexpr int kLevelsOfNewShape = 3;
constexpr uint64_t kQuietMeasurements = 100;
// Number of measurements over which the number of attended positions per row is averaged.
constexpr double kContextMemory = 10;

}  // namespace

CostCurve::CostCurve(double doubling_rows, double shape_error)
    : attention_(1), covariance_{}, noise_variance_(kInitialNoise) {
  for (size_t i = 0; i < kNodes; ++i) {
    log_seconds_[i] = std::log(1e-3 * (1 + CostTable::kRows[i] / doubling_rows));
    for (size_t j = 0; j < kNodes; ++j) {
      const double distance =
          std::abs(std::log2(static_cast<double>(CostTable::kRows[i]) / CostTable::kRows[j]));
      const double smooth = std::exp(-0.5 * std::pow(distance / kOctaves, 2));
      const double rough = std::exp(-distance);
      shape_covariance_[i][j] =
          shape_error * shape_error * (smooth + kRoughShare * (rough - smooth));
      covariance_[i][j] = kUnknownLevel + shape_covariance_[i][j];
    }
  }
  covariance_[kNodes][kNodes] = kUnknownAttention;
  MakeMonotone();
}

CostTable::Place CostTable::Find(uint32_t rows) {
  if (rows >= kRows.back()) return {kRows.size() - 2, 1, static_cast<double>(rows) / kRows.back()};
  size_t low = std::min<size_t>(rows, 8) - 1;  // the first eight nodes are 1, 2, … 8
  while (kRows[low + 1] <= rows) ++low;
  return {low, static_cast<double>(rows - kRows[low]) / (kRows[low + 1] - kRows[low]), 1};
}

double CostTable::Seconds(uint32_t rows) const {
  if (rows == 0) return 0;
  const Place place = Find(rows);
  return place.scale * (seconds_[place.low] +
                        place.weight_high * (seconds_[place.low + 1] - seconds_[place.low]));
}

CostTable CostTable::Plus(double seconds) const {
  CostTable sum = *this;
  for (double& node : sum.seconds_) node += seconds;
  return sum;
}

double CostTable::Distance(const CostTable& other) const {
  double least = 1;
  double most = 1;
  for (size_t i = 0; i < kRows.size(); ++i) {
    const double ratio = seconds_[i] / other.seconds_[i];
    least = std::min(least, ratio);
    most = std::max(most, ratio);
  }
  return std::max(std::log(most), -std::log(least));
}

double CostCurve::LevelDrift() const {
  return age_ == 0 ? 0 : kLevelDrift + kUnseenLevelDrift * (age_ - 1);
}

double CostCurve::LogSeconds(uint32_t rows) const {
  const CostTable::Place place = CostTable::Find(rows);
  return log_seconds_[place.low] +
         place.weight_high * (log_seconds_[place.low + 1] - log_seconds_[place.low]) +
         std::log(place.scale);
}

void CostCurve::AddUncertainty(double level_variance, double shape_factor) {
  for (size_t i = 0; i < kNodes; ++i) {
    for (size_t j = 0; j < kNodes; ++j) {
      covariance_[i][j] += level_variance + shape_factor * shape_covariance_[i][j];
    }
  }
}

double CostCurve::AttentionUnit() const { return kAttentionUnit * std::exp(log_seconds_[0]); }

double CostCurve::Linearize(std::span<const uint32_t> passes, double attended,
                            Vector* slope) const {
  const double attending = attended * AttentionUnit();
  double predicted = attention_ * attending;
  for (uint32_t rows : passes) predicted += std::exp(LogSeconds(rows));
  (*slope)[0] = attention_ * attending / predicted;
  (*slope)[kNodes] = attending / predicted;
  for (uint32_t rows : passes) {
    const CostTable::Place place = CostTable::Find(rows);
    const double share = std::exp(LogSeconds(rows)) / predicted;
    (*slope)[place.low] += share * (1 - place.weight_high);
    (*slope)[place.low + 1] += share * place.weight_high;
  }
  return predicted;
}

double CostCurve::Observe(std::span<const uint32_t> passes, double seconds, double noise,
                          double attended) {
  if (seconds <= 0) return 0;
  if (covariance_[0][0] < kMostUncertain) {
    AddUncertainty(LevelDrift(), kShapeDrift * age_);
    double& attention = covariance_[kNodes][kNodes];
    attention = std::min(attention + kShapeDrift * age_ * kUnknownAttention, kUnknownAttention);
  }
  age_ = 0;
  double interrupted_seconds = 0;
  if (outlier_age_ > kLongestOutlierAge) interrupted_seconds = outliers_.End().interrupted_seconds;

  const double rows_in_all = std::accumulate(passes.begin(), passes.end(), 0.0);
  attended_per_row_ += (attended / rows_in_all - attended_per_row_) / kContextMemory;

  Vector slope{};
  const double predicted = Linearize(passes, attended, &slope);
  const double surprise = std::log(seconds / predicted);

  Vector gain;
  double variance = 0;
  const auto project = [&] {
    variance = 0;
    gain.fill(0);
    for (size_t j = 0; j < kStates; ++j) {
      if (slope[j] == 0) continue;
      for (size_t i = 0; i < kStates; ++i) gain[i] += covariance_[j][i] * slope[j];
    }
    for (size_t i = 0; i < kStates; ++i) variance += slope[i] * gain[i];
  };
  project();
  const double measurement_variance = noise * noise_variance_;
  double limit = kOutlier * std::sqrt(variance + measurement_variance);
  const uint32_t most_rows = *std::max_element(passes.begin(), passes.end());
  const OutlierRun::Result run = std::abs(surprise) <= limit
                                     ? outliers_.AddExpected(most_rows)
                                     : outliers_.AddOutlier(most_rows, surprise, limit, predicted);
  if (std::abs(surprise) > limit) outlier_age_ = 0;
  const bool interrupted = surprise > limit && run.new_level == 0;
  if (run.new_level != 0) {
    ++num_new_levels_;
    // Mostly the whole machine became slower or faster, and attending with it. If levels follow
    // each other, they do not explain what is measured, and the shape is another one.
    const bool is_alone = num_observations_ - observations_at_new_level_ > kQuietMeasurements;
    num_levels_in_a_row_ = is_alone ? 1 : num_levels_in_a_row_ + 1;
    observations_at_new_level_ = num_observations_;
    AddUncertainty(run.new_level * run.new_level,
                   num_levels_in_a_row_ < kLevelsOfNewShape ? kShapeOfNewLevel : 1);
    project();
    limit = std::abs(run.new_level);
  }
  // Until a run shows otherwise, an interrupted measurement counts like one on the curve.
  const double pull = interrupted ? 0 : std::clamp(surprise, -limit, limit);
  if (!interrupted) {
    noise_variance_ +=
        (std::clamp(pull * pull - variance, 0.0, kMostNoise) / noise - noise_variance_) /
        kNoiseMemory;
  }
  noise_variance_ = std::clamp(noise_variance_, kLeastNoise, kMostNoise);
  const double total = variance + measurement_variance;
  for (size_t i = 0; i < kNodes; ++i) log_seconds_[i] += gain[i] / total * pull;
  attention_ = std::max(0.0, attention_ + gain[kNodes] / total * pull);
  Vector share;
  for (size_t i = 0; i < kStates; ++i) share[i] = gain[i] / total;
  for (size_t i = 0; i < kStates; ++i) {
    for (size_t j = 0; j < kStates; ++j) covariance_[i][j] -= share[i] * gain[j];
  }
  if (!interrupted) ++num_observations_;
  MakeMonotone();
  return interrupted_seconds + run.interrupted_seconds;
}

void CostCurve::MakeMonotone() {
  // Pool adjacent violators (Barlow et al. 1972) finds the nearest non-decreasing curve. Each node
  // has a weight that grows with its certainty.
  struct Block {
    double value, weight;
    size_t end;
  };
  std::array<Block, kNodes> blocks;
  size_t num_blocks = 0;
  for (size_t i = 0; i < kNodes; ++i) {
    Block block{log_seconds_[i], 1 / std::max(covariance_[i][i], 1e-12), i + 1};
    while (num_blocks > 0 && blocks[num_blocks - 1].value >= block.value) {
      const Block& before = blocks[--num_blocks];
      const double weight = before.weight + block.weight;
      block.value = (before.value * before.weight + block.value * block.weight) / weight;
      block.weight = weight;
    }
    blocks[num_blocks++] = block;
  }
  // The mean of a log-normal is larger than its median by a factor of exp(variance / 2).
  const double mean = std::exp(noise_variance_ / 2);
  for (size_t b = 0, i = 0; b < num_blocks; ++b) {
    const double value = mean * std::exp(blocks[b].value);
    for (; i < blocks[b].end; ++i) table_.seconds_[i] = value;
  }
  seconds_attended_ = mean * attention_ * AttentionUnit();
}

double CostCurve::Variance(const Vector& slope) const {
  double variance = 0;
  for (size_t i = 0; i < kStates; ++i) {
    if (slope[i] == 0) continue;
    for (size_t j = 0; j < kStates; ++j) variance += slope[i] * slope[j] * covariance_[i][j];
  }
  return std::max(0.0, variance);
}

double CostCurve::NodeError(size_t node) const {
  // This is the error of a pass with contexts of the current length. The sum of the costs of rows
  // and of attending is known better than either of them alone.
  const double pass = std::exp(log_seconds_[node]);
  const double attending = attended_per_row_ * CostTable::kRows[node] * AttentionUnit();
  const double sum = pass + attention_ * attending;
  Vector slope{};
  slope[0] = attention_ * attending / sum;
  slope[kNodes] = attending / sum;
  slope[node] += pass / sum;
  return std::sqrt(Variance(slope) + LevelDrift() +
                   kShapeDrift * age_ * shape_covariance_[node][node]);
}

double CostCurve::Error(uint32_t rows) const {
  const CostTable::Place place = CostTable::Find(rows);
  return NodeError(place.weight_high < 0.5 ? place.low : place.low + 1);
}

CostTable CostCurve::Optimistic(double deviations) const {
  CostTable table = table_;
  for (size_t i = 0; i < kNodes; ++i) table.seconds_[i] *= std::exp(-deviations * NodeError(i));
  return table;
}

}  // namespace tandem
