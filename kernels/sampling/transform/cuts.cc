#include "kernels/sampling/transform/cuts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace tandem {
namespace {

// A buffer that grows to the largest row of the thread and never shrinks, so that draws allocate
// nothing in the steady state.
std::span<uint64_t> KeyBuffer(size_t size) {
  thread_local std::vector<uint64_t> keys;
  if (keys.size() < size) keys.resize(size);
  return std::span<uint64_t>(keys.data(), size);
}

// Returns a value that at least k entries reach: the kth largest maximum of more than k disjoint
// buckets. Returns -infinity if the row is so short that nothing would be gained.
float ReachedByAtLeast(std::span<const float> values, size_t k) {
  const size_t num_buckets = (std::max<size_t>(4 * k, 256) + row::kBucketMultiple - 1) /
                             row::kBucketMultiple * row::kBucketMultiple;
  if (2 * num_buckets > values.size()) return -std::numeric_limits<float>::infinity();
  thread_local std::vector<float> maxima;
  maxima.resize(num_buckets);
  row::BucketMaxima(values, maxima);
  const auto kth = maxima.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<>());
  return *kth;
}

}  // namespace

std::span<uint64_t> LargestEntries(std::span<const float> values, size_t k) {
  // Candidates are the entries above a threshold. A common row has hardly more than k of them. When
  // their buffer is full, the best k stay, and the threshold rises to the worst of them. A later
  // entry must beat the threshold, because an equal entry has a higher id. The entries that filled
  // the buffer pay for this step, so the worst row takes O(V) too.
  const size_t capacity = std::min(k + std::max<size_t>(k, 256), values.size()) + row::kCollectRoom;
  const std::span<uint64_t> keys = KeyBuffer(capacity);
  float threshold =
      std::nextafter(ReachedByAtLeast(values, k), -std::numeric_limits<float>::infinity());
  size_t count = 0;
  for (size_t i = 0; i < values.size();) {
    i = row::CollectAbove(values, i, threshold, keys, &count);
    if (count > k) {
      std::nth_element(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(k - 1),
                       keys.begin() + static_cast<ptrdiff_t>(count));
      count = k;
      threshold = row::ValueOf(keys[k - 1]);
    }
  }
  return keys.first(count);
}

row::Cut TopKCut(std::span<const float> values, size_t k) {
  if (k >= values.size()) return {};
  const std::span<uint64_t> kept = LargestEntries(values, k);
  if (kept.size() < k) return {};
  const uint64_t last = *std::max_element(kept.begin(), kept.end());
  return {.value = row::ValueOf(last), .last_tie = row::IdOf(last)};
}

row::Cut TopPCut(std::span<const float> scaled, float top_p, double sum) {
  // All entries at or below `floor` add up to less than top-p may cut, so the cut is above `floor`.
  const double probability = top_p;
  const auto size = static_cast<double>(scaled.size());
  const float floor = static_cast<float>(std::log((1.0 - probability) * sum / size)) - 1e-3f;

  const size_t num_bins = std::clamp<size_t>(std::bit_ceil(scaled.size()) / 4, 16, 4096);
  thread_local std::vector<double> mass;
  mass.assign(num_bins, 0.0);
  row::MassHistogram(scaled, floor, mass);

  const double wanted = probability * sum;
  double above = 0;
  size_t bin = 0;
  while (bin < num_bins && above + mass[bin] < wanted) above += mass[bin++];
  if (bin == num_bins) return {};  // happens only by rounding: every token is needed

  const std::span<uint64_t> buffer = KeyBuffer(scaled.size() + row::kCollectRoom);
  const std::span<uint64_t> keys =
      buffer.first(row::CollectBin(scaled, floor, num_bins, bin, buffer));
  std::sort(keys.begin(), keys.end());
  thread_local std::vector<float> weights;
  weights.resize(keys.size());
  std::transform(keys.begin(), keys.end(), weights.begin(), row::ValueOf);
  row::Exp(weights, weights.data());

  size_t last = 0;
  while (last + 1 < keys.size() && above + static_cast<double>(weights[last]) < wanted) {
    above += static_cast<double>(weights[last++]);
  }
  return {.value = row::ValueOf(keys[last]), .last_tie = row::IdOf(keys[last])};
}

}  // namespace tandem
