// Temperature, top-k, top-p, min-p and normalization of rows of logits on a GPU. Each thread block
// handles one row.
//
// A row does not fit into a multiprocessor, so the time is that of the passes over it: one that
// finds the largest entry, one or two for the cuts, one for the sum if the cuts did not give it,
// and one that writes.
//
// Neither cut sorts the row. Both look for the smallest key (largest value, lowest id first) up to
// which the weights add up to a wanted sum: a count for top-k, a probability for top-p. They gather
// the few entries that the key can be among, and sort those.
//   top-k  Each thread knows the largest of its own entries. At least k entries reach the kth
//          largest of these, and hardly more than k do.
//   top-p  A histogram of the masses, by the distance from the largest entry, tells in which bin
//          the wanted sum is reached. The entries of this bin are gathered.
// If there are too many entries to gather, such as ties, or if top-k keeps more entries than there
// are threads, a radix selection finds the key. Weights are whole numbers, so their sums do not
// depend on the order in which threads add.
#include <cmath>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/transform/row_scan.cuh"
#include "kernels/sampling/transform/sort_key.cuh"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr unsigned kThreads = 1024;
constexpr unsigned kDigitBits = 11;
constexpr unsigned kBins = 1u << kDigitBits;
constexpr unsigned kCapacity = 4096;  // entries that can be gathered, a power of two
constexpr float kBinsPerUnit = 64;    // the last bin begins at exp(-32), where masses are 0
constexpr float kMassUnit = 0x1p44f;  // unit of exp(scaled) <= 1; 2^19 such values fit into 64 bits
// More than the rounding of a distance and of its bin's edges can do.
constexpr float kSlack = 1e-5f;

using Mass = unsigned long long;

// Where a sum of weights is reached. `before` is the sum of the weights before this place.
struct Place {
  unsigned index;
  Mass before;
  Mass weight;
};
constexpr unsigned kNowhere = ~0u;

// A histogram has the two halves of each bin's mass, because a GPU adds only 32 bits in shared
// memory without a loop.
struct Histogram {
  unsigned low[kBins];
  unsigned high[kBins];
};

struct Shared {
  union {  // The histogram has been read when entries are gathered.
    Histogram bins;
    uint64_t keys[kCapacity];
  };
  Place place;
  unsigned num_gathered;
  Mass masses[kWarpSize];
  float floats[kWarpSize];
  double doubles[kWarpSize];
};

// The entries that are kept: those above a value, and of its ties those up to an id.
struct Cut {
  float value = -INFINITY;
  unsigned last_tie = ~0u;

  __device__ bool Keeps(unsigned i, float x) const {
    const int is_kept_tie = static_cast<int>(x == value) & static_cast<int>(i <= last_tie);
    return (static_cast<int>(x > value) | is_kept_tie) != 0;  // without a branch
  }
};
__device__ Cut CutAfter(uint64_t key) {
  if (key == ~uint64_t{0}) return {};
  return {ValueOfKey(key), static_cast<unsigned>(key)};
}

// A row, and what is known after the first pass. A temperature below 2^-70 counts as 2^-70.
struct Row {
  const float* adjusted;
  unsigned size;
  float largest;
  float temperature;
  float reciprocal;  // that of the temperature
  float lowest;      // distances below this one have a weight of 0

  __device__ float Distance(float value) const { return __fadd_rn(value, -largest); }
  // Returns the quotient of the distance and the temperature. Where it is infinite, the result is
  // not a number.
  __device__ float Scaled(float value) const { return Divided(Distance(value)); }
  // Returns the same unless its exp is 0. Then the result is -256, with the exp 0.
  __device__ float Exponent(float value) const { return Divided(fmaxf(Distance(value), lowest)); }

  // __fdiv_rn would compute the reciprocal again for each entry. The last of these steps, which are
  // its own, rounds correctly because the reciprocal does (Markstein 1990). Tiny quotients, whose
  // exp is 1, may be wrong in the last place, because a remainder underflows.
  __device__ float Divided(float distance) const {
    float quotient = __fmul_rn(distance, reciprocal);
    quotient = __fmaf_rn(__fmaf_rn(-temperature, quotient, distance), reciprocal, quotient);
    return __fmaf_rn(__fmaf_rn(-temperature, quotient, distance), reciprocal, quotient);
  }
};

__device__ Row RowOf(const float* adjusted, size_t size, float largest, float temperature) {
  temperature = fmaxf(temperature, 0x1p-70f);
  return {.adjusted = adjusted,
          .size = static_cast<unsigned>(size),
          .largest = largest,
          .temperature = temperature,
          .reciprocal = __fdiv_rn(1, temperature),
          .lowest = -256 * temperature};
}

// The exponents are <= 0. A masked entry at a huge temperature has one that is not a number, and no
// mass.
__device__ Mass MassOf(float exponent) {
  const float units = __fmul_rn(expf(exponent), kMassUnit);
  return units > 0 ? static_cast<Mass>(units) : Mass{0};
}
__device__ unsigned BinOf(float exponent) {
  return static_cast<unsigned>(fminf(__fmul_rn(exponent, -kBinsPerUnit), kBins - 1));
}

// Returns the sum of the masses of all threads before this one. `total` gets the sum of all. The
// caller has a barrier before the next call.
__device__ Mass SumBefore(Mass mass, Shared* shared, Mass* total) {
  static_assert(kThreads == kWarpSize * kWarpSize);
  const auto sum_up_to = [](Mass sum) {
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const Mass before = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(lanes));
      if (Lane() >= lanes) sum += before;
    }
    return sum;
  };
  const Mass in_warp = sum_up_to(mass);
  if (Lane() == kWarpSize - 1) shared->masses[Warp()] = in_warp;
  __syncthreads();
  if (Warp() == 0) shared->masses[Lane()] = sum_up_to(shared->masses[Lane()]);
  __syncthreads();
  *total = shared->masses[kWarpSize - 1];
  return (Warp() > 0 ? shared->masses[Warp() - 1] : 0) + in_warp - mass;
}

// Returns the first place up to which the weights add up to the wanted sum. `weight(i)` is given
// for i < kThreads * kPerThread, and `wanted(total)` is in [1, total]. Otherwise the index is
// kNowhere. All threads get the place.
template <unsigned kPerThread, typename WeightAt, typename Wanted>
__device__ Place FindPlace(Shared* shared, WeightAt weight, Wanted wanted) {
  Mass weights[kPerThread];
  Mass sum = 0;
  TANDEM_UNROLL
  for (unsigned j = 0; j < kPerThread; ++j) {
    weights[j] = weight(kPerThread * threadIdx.x + j);
    sum += weights[j];
  }
  if (threadIdx.x == 0) shared->place = {kNowhere, 0, 0};
  Mass total;
  Mass before = SumBefore(sum, shared, &total);
  const Mass least = wanted(total);
  TANDEM_UNROLL
  for (unsigned j = 0; j < kPerThread; ++j) {
    if (before < least && before + weights[j] >= least) {
      shared->place = {kPerThread * threadIdx.x + j, before, weights[j]};
    }
    before += weights[j];
  }
  __syncthreads();
  const Place place = shared->place;
  __syncthreads();
  return place;
}

__device__ void ClearBins(Histogram* bins) {
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) {
    bins->low[bin] = 0;
    bins->high[bin] = 0;
  }
  __syncthreads();
}
// Exact in any order: exactly those additions carry that make the lower half wrap around.
__device__ void AddToBin(Histogram* bins, unsigned bin, Mass mass) {
  const auto low = static_cast<unsigned>(mass);
  const unsigned old = atomicAdd(&bins->low[bin], low);
  const unsigned high = static_cast<unsigned>(mass >> 32) + (old + low < old ? 1 : 0);
  if (high > 0) atomicAdd(&bins->high[bin], high);
}
// Returns FindPlace for the bins. All threads have added.
template <typename Wanted>
__device__ Place FindBin(Shared* shared, Wanted wanted) {
  __syncthreads();
  const Histogram& bins = shared->bins;
  return FindPlace<kBins / kThreads>(
      shared, [&](unsigned bin) { return Mass{bins.high[bin]} << 32 | bins.low[bin]; }, wanted);
}

// Sorts the first `count` keys. All threads have written theirs.
__device__ void SortKeys(uint64_t* keys, unsigned count) {
  unsigned padded = 1;
  while (padded < count) padded *= 2;
  for (unsigned i = count + threadIdx.x; i < padded; i += kThreads) keys[i] = ~uint64_t{0};
  __syncthreads();
  // Batcher's bitonic sort.
  for (unsigned run = 2; run <= padded; run *= 2) {
    for (unsigned distance = run / 2; distance > 0; distance /= 2) {
      for (unsigned pair = threadIdx.x; pair < padded / 2; pair += kThreads) {
        const unsigned i = 2 * pair - (pair & (distance - 1));
        const uint64_t first = keys[i];
        const uint64_t second = keys[i + distance];
        if ((first > second) == ((i & run) == 0)) {
          keys[i] = second;
          keys[i + distance] = first;
        }
      }
      __syncthreads();
    }
  }
}

// Gathers the keys of the entries with `wants(i, value)` and sorts them. Returns their number. If
// it is larger than kCapacity, there are no sorted keys. `wants` is false of -infinity.
template <typename Wants>
__device__ unsigned Gather(const Row& row, Shared* shared, Wants wants) {
  if (threadIdx.x == 0) shared->num_gathered = 0;
  __syncthreads();
  ScanRow(row.adjusted, row.size, -INFINITY, [&](unsigned i, float value) {
    if (!wants(i, value)) return;
    const unsigned place = atomicAdd(&shared->num_gathered, 1u);
    if (place < kCapacity) shared->keys[place] = DeviceSortKey(value, i);
  });
  __syncthreads();
  const unsigned count = shared->num_gathered;
  if (count <= kCapacity) SortKeys(shared->keys, count);
  return count;
}

struct Selection {
  uint64_t key = ~uint64_t{0};  // all ones: every entry
  Mass reached = 0;             // sum of the weights of all keys up to this one
};

// Returns the smallest key such that the weights of all keys up to it reach `wanted`, by a radix
// selection. `for_each(body)` calls body(i, value) for the thread's entries; `weight(i, value)` is
// their weight. If `by_value`, ids do not matter, and those of the result are 0.
template <typename ForEach, typename WeightOf>
__device__ Selection SelectByDigits(Mass wanted, bool by_value, Shared* shared, ForEach for_each,
                                    WeightOf weight) {
  uint64_t prefix = 0;
  uint64_t known = 0;  // the bits of the key that `prefix` has
  Mass left = wanted;
  // The first three digits are those of the value. Ids have less than 20 bits. Digits may overlap.
  for (int shift = 53; shift >= 0;) {
    ClearBins(&shared->bins);
    for_each([&](unsigned i, float value) {
      const uint64_t key = DeviceSortKey(value, i);
      if ((key & known) != prefix) return;
      if (const Mass mass = weight(i, value); mass > 0) {
        AddToBin(&shared->bins, static_cast<unsigned>(key >> shift) % kBins, mass);
      }
    });
    const Place place = FindBin(shared, [&](Mass) { return left; });
    if (place.index == kNowhere) return {};
    prefix |= static_cast<uint64_t>(place.index) << shift;
    known |= static_cast<uint64_t>(kBins - 1) << shift;
    left -= place.before;
    if (shift == (by_value ? 32 : 0)) return {prefix, wanted - left + place.weight};
    shift = shift == 53 ? 42 : shift == 42 ? 32 : shift == 32 ? 9 : 0;
  }
  return {};
}
template <typename WeightOf>
__device__ Selection SelectInRow(const Row& row, Mass wanted, Shared* shared, WeightOf weight) {
  const auto for_each = [&](const auto& body) {
    ScanRow<kTwoInFlight>(row.adjusted, row.size, -INFINITY, [&](unsigned i, float value) {
      if (i < row.size) body(i, value);
    });
  };
  return SelectByDigits(wanted, false, shared, for_each, weight);
}

// Returns how much of `total` reaches the probability.
__device__ Mass WantedOf(float top_p, Mass total) {
  const auto wanted =
      static_cast<Mass>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
  return wanted < 1 ? 1 : wanted < total ? wanted : total;
}

// What the cuts have left of a row.
struct Left {
  Cut cut;          // min-p may cut more
  double sum = -1;  // the sum of exp over all entries that are kept; negative: not known
};

// Applies top-k, top-p and min-p if 0 < top_k <= kThreads and few entries tie with the kth. The
// result is false otherwise.
//   of_thread  the largest of the thread's entries
__device__ bool CutToFew(const Row& row, const RowSampling& params, float of_thread, Shared* shared,
                         Left* left) {
  const auto top_k = static_cast<unsigned>(params.top_k);
  const auto for_each = [&](const auto& body) { body(threadIdx.x, of_thread); };
  const float reached = ValueOfKey(
      SelectByDigits(top_k, true, shared, for_each, [](unsigned, float) { return Mass{1}; }).key);
  // Masked entries need no cut: if fewer than k entries are not masked, all of these stay.
  const unsigned gathered = Gather(
      row, shared, [&](unsigned, float value) { return value >= reached && value > -INFINITY; });
  if (gathered > kCapacity) return false;
  const uint64_t* const keys = shared->keys;
  const unsigned count = gathered < top_k ? gathered : top_k;
  uint64_t last = count > 0 ? keys[count - 1] : ~uint64_t{0};
  const bool has_key = threadIdx.x < count;
  const float exponent = has_key ? row.Exponent(ValueOfKey(keys[threadIdx.x])) : -INFINITY;
  if (params.top_p < 1) {
    const Place place = FindPlace<1>(
        shared, [&](unsigned) { return MassOf(exponent); },
        [&](Mass total) { return WantedOf(params.top_p, total); });
    if (place.index != kNowhere) last = keys[place.index];
  }
  const bool is_kept = has_key && keys[threadIdx.x] <= last && exponent >= logf(params.min_p);
  left->sum = BlockSum(is_kept ? static_cast<double>(expf(exponent)) : 0.0, shared->doubles);
  left->cut = CutAfter(last);
  return true;
}

// Returns what top-p selects from the entries with `keeps(i, value)`.
//   least_mass  the entries have at least this mass, in units of the largest entry's
template <typename Keeps>
__device__ Selection SelectTopP(const Row& row, float top_p, Keeps keeps, float least_mass,
                                Shared* shared) {
  // All entries at or below this distance add up to less than top-p may cut. They need no bin.
  const float lowest =
      logf(__fdiv_rn(__fmul_rn(1 - top_p, least_mass), static_cast<float>(row.size))) - 1e-3f;
  ClearBins(&shared->bins);
  Mass sum = 0;
  ScanRow<kTwoInFlight>(row.adjusted, row.size, -INFINITY, [&](unsigned i, float value) {
    if (!keeps(i, value)) return;
    const float exponent = row.Exponent(value);
    const Mass mass = MassOf(exponent);
    sum += mass;
    if (exponent > lowest) AddToBin(&shared->bins, BinOf(exponent), mass);
  });
  Mass total;
  SumBefore(sum, shared, &total);
  const Mass wanted = WantedOf(top_p, total);
  const Place bin = FindBin(shared, [&](Mass) { return wanted; });
  const auto mass_of_entry = [&](unsigned i, float value) {
    return keeps(i, value) ? MassOf(row.Exponent(value)) : Mass{0};
  };
  if (bin.index == kNowhere) return SelectInRow(row, wanted, shared, mass_of_entry);

  // The bin's edges as distances, a little apart, so that few entries need a division.
  const float width = __fdiv_rn(row.temperature, kBinsPerUnit);
  const float from = -static_cast<float>(bin.index) * width * (1 - kSlack);
  const float to = -static_cast<float>(bin.index + 1) * width * (1 + kSlack);
  const auto is_in_bin = [&](unsigned i, float value) {
    const float distance = row.Distance(value);
    return distance <= from && distance >= to && BinOf(row.Exponent(value)) == bin.index &&
           keeps(i, value);
  };
  const Mass left = wanted - bin.before;
  const unsigned count = Gather(row, shared, is_in_bin);
  Selection selection;
  if (count > kCapacity) {
    selection = SelectInRow(row, left, shared, [&](unsigned i, float value) {
      return is_in_bin(i, value) ? mass_of_entry(i, value) : Mass{0};
    });
  } else {
    const uint64_t* const keys = shared->keys;
    const Place place = FindPlace<kCapacity / kThreads>(
        shared,
        [&](unsigned i) { return i < count ? MassOf(row.Exponent(ValueOfKey(keys[i]))) : Mass{0}; },
        [&](Mass) { return left; });
    if (place.index != kNowhere) selection = {keys[place.index], place.before + place.weight};
  }
  selection.reached += bin.before;
  return selection;
}

__device__ Left ApplyCuts(const Row& row, const RowSampling& params, float of_thread,
                          Shared* shared) {
  Left left;
  const bool has_top_k = params.top_k > 0 && static_cast<unsigned>(params.top_k) < row.size;
  if (has_top_k) {
    const auto top_k = static_cast<unsigned>(params.top_k);
    if (top_k <= kThreads && CutToFew(row, params, of_thread, shared, &left)) return left;
    left.cut =
        CutAfter(SelectInRow(row, top_k, shared, [](unsigned, float) { return Mass{1}; }).key);
  }
  if (params.top_p < 1) {
    Selection top_p;
    if (has_top_k) {
      const auto keeps = [&](unsigned i, float value) { return left.cut.Keeps(i, value); };
      top_p = SelectTopP(row, params.top_p, keeps, 1, shared);
    } else {
      // The threads' largest entries are different entries of the row.
      const float least = BlockSum(expf(row.Exponent(of_thread)), shared->floats);
      top_p = SelectTopP(
          row, params.top_p, [](unsigned, float) { return true; }, least, shared);
    }
    if (top_p.key != ~uint64_t{0}) {
      left.cut = CutAfter(top_p.key);
      if (params.min_p == 0) left.sum = static_cast<double>(top_p.reached) / kMassUnit;
    }
  }
  return left;
}

// Returns the sum of exp over the entries with `keeps(i, value)` and an exponent of at least
// `floor`.
template <typename Keeps>
__device__ double SumOf(const Row& row, float floor, Shared* shared, Keeps keeps) {
  double sum = 0;
  ScanRow<kTwoInFlight>(row.adjusted, row.size, -INFINITY, [&](unsigned i, float value) {
    const float exponent = row.Exponent(value);
    const bool is_kept = keeps(i, value) && exponent >= floor;
    sum = __dadd_rn(sum, static_cast<double>(is_kept ? expf(exponent) : 0.0f));
  });
  return BlockSum(sum, shared->doubles);
}

__global__ void __launch_bounds__(kThreads) LogProbsRow(DeviceLogProbsArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const RowSampling params = args.params[blockIdx.x];
  const size_t size = args.vocabulary_size;
  const float* const adjusted = args.adjusted + blockIdx.x * args.stride;
  float* const out = args.log_probs + blockIdx.x * args.stride;
  if (params.temperature == 0) {  // greedy
    MapRow(adjusted, out, size, [](unsigned, float value) { return value; });
    return;
  }
  float largest = -INFINITY;
  ScanRow(adjusted, size, -INFINITY,
          [&](unsigned, float value) { largest = fmaxf(largest, value); });
  const Row row = RowOf(adjusted, size, BlockMax(largest, shared->floats), params.temperature);

  const Left left = ApplyCuts(row, params, largest, shared);
  const float floor = logf(params.min_p);  // min_p 0: -infinity
  double sum = left.sum;
  if (sum < 0 && left.cut.value == -INFINITY) {  // Masked entries add nothing.
    sum = SumOf(row, floor, shared, [](unsigned, float) { return true; });
  } else if (sum < 0) {
    sum = SumOf(row, floor, shared,
                [&](unsigned i, float value) { return left.cut.Keeps(i, value); });
  }
  const auto log_sum = static_cast<float>(log(sum));
  // In every pass, the same thread reads an entry.
  MapRow(adjusted, out, row.size, [&](unsigned i, float value) {
    if (!left.cut.Keeps(i, value)) return -INFINITY;
    const float x = row.Scaled(value);
    return x >= floor ? __fadd_rn(x, -log_sum) : -INFINITY;  // also if x is not a number
  });
}

}  // namespace

absl::Status LogProbs(const DeviceLogProbsArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("LogProbs", LogProbsRow,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

}  // namespace tandem
