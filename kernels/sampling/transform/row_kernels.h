// Vectorized passes over one row of V floats. The transforms and the draws are made of them.
// Highway chooses the instruction set at run time. A result depends on the row's values alone,
// because there is one order of sums for every alignment. Sums are doubles. Entries that were cut
// or masked are -infinity. Only IsFinite and AllAtMost accept NaN.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_ROW_KERNELS_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_ROW_KERNELS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace tandem::row {

// Orders entries by size: ascending keys are descending values, and ascending ids among equals.
inline uint64_t SortKey(float value, uint32_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes +0
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{~ascending} << 32 | id;
}
inline float ValueOf(uint64_t sort_key) {
  const uint32_t ascending = ~static_cast<uint32_t>(sort_key >> 32);
  return std::bit_cast<float>((ascending >> 31) != 0 ? ascending & 0x7FFFFFFFu : ~ascending);
}
inline int32_t IdOf(uint64_t sort_key) {
  return static_cast<int32_t>(static_cast<uint32_t>(sort_key));
}

// Keeps x > value, and x == value up to id `last_tie`. The default keeps everything.
struct Cut {
  float value = -std::numeric_limits<float>::infinity();
  int32_t last_tie = std::numeric_limits<int32_t>::max();
};

bool IsFinite(std::span<const float> x);

// Every entry is <= limit; none is NaN.
bool AllAtMost(std::span<const float> x, float limit);

// PRECOND: not empty.
float Max(std::span<const float> x);

// Lowest index of an entry that equals `value`; x.size() if none does.
size_t Find(std::span<const float> x, float value);

// maxima[j] becomes the largest x[i] with i mod maxima.size() = j. PRECOND: maxima.size() is a
// multiple of kBucketMultiple.
inline constexpr size_t kBucketMultiple = 64;
void BucketMaxima(std::span<const float> x, std::span<float> maxima);

// Sum of exp(x - offset). PRECOND: x - offset <= 88.
double SumExp(std::span<const float> x, float offset);

// scaled becomes (x - max) / temperature if `cut` keeps x, and -infinity otherwise. Returns the sum
// of exp(scaled).
//   x, scaled  [V]; may be the same memory
double Scale(std::span<const float> x, float max, float temperature, Cut cut, float* scaled);

// Cuts in place, and cuts everything below `floor` too. Returns the sum of exp(x) over the entries
// that are left.
double Truncate(std::span<float> x, Cut cut, float floor);

// x -= value
void Subtract(std::span<float> x, float value);

// Appends the sort keys of entries > threshold, from index `begin` on, until the row ends or `keys`
// could overflow. Returns the index where the next call goes on. A call makes progress if
// keys.size() >= *count + kCollectRoom.
inline constexpr size_t kCollectRoom = 256;
size_t CollectAbove(std::span<const float> x, size_t begin, float threshold,
                    std::span<uint64_t> keys, size_t* count);

// Histogram of exp(x) over x in (floor, 0]: bin = -x * mass.size() / -floor. PRECOND: floor < 0,
// x <= 0.
void MassHistogram(std::span<const float> x, float floor, std::span<double> mass);
// Writes the entries of one bin of MassHistogram to `keys` [V + kCollectRoom], in the order of ids.
// Returns their number.
size_t CollectBin(std::span<const float> x, float floor, size_t num_bins, size_t bin,
                  std::span<uint64_t> keys);

// out becomes exp(x), with the bits that all sums above are made of.
void Exp(std::span<const float> x, float* out);

// The weights of a draw in double: exp(x), and max(0, exp(p) - exp(q)). Both return the weights'
// sum.
double Weights(std::span<const float> log_probs, double* weights);
double ResidualWeights(std::span<const float> target_log_probs,
                       std::span<const float> draft_log_probs, double* weights);

}  // namespace tandem::row

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_ROW_KERNELS_H_
