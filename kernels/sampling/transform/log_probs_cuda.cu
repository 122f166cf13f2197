// Temperature, top-k, top-p, min-p and normalization of rows of logits on a GPU. Each thread block
// handles one row.
//
// Neither cut sorts. Both look for the smallest key (largest value, lowest id first) up to which
// the weights add up to a wanted sum: a count for top-k, a probability for top-p. A radix selection
// finds it with a histogram of 256 bins for each byte of the key. Weights are whole numbers, so
// their sums do not depend on the order in which threads add.
#include <cmath>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/transform/sort_key.cuh"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr int kThreads = 512;
constexpr int kBins = 256;
constexpr float kMassUnit = 0x1p44f;  // unit of exp(scaled) <= 1; 2^19 such values fit into 64 bits
constexpr int kIdBytes = 3;           // bytes of a key's lower half that may differ

using Mass = unsigned long long;  // a type that atomicAdd accepts

struct Shared {
  Mass bins[kBins];
  Mass total;
  Mass left;        // wanted mass that is left in the chosen bin
  uint64_t prefix;  // prefix of the key that is looked for
  float floats[kWarpSize];
  double doubles[kWarpSize];
};

// Returns the smallest key such that the weights of all keys up to it reach `wanted`. `weight(i)`
// is 0 for entries that do not count. PRECOND: 0 < wanted <= sum of all weights.
template <typename WeightOf>
__device__ uint64_t SelectKey(const float* values, size_t size, Mass wanted, Shared* shared,
                              WeightOf weight) {
  uint64_t prefix = 0;
  Mass left = wanted;
  for (int byte = 7; byte >= 0; --byte) {
    if (byte < 4 && byte >= kIdBytes) {  // always zero
      prefix <<= 8;
      continue;
    }
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
      shared->bins[bin] = 0;
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < size; i += kThreads) {
      const uint64_t key = DeviceSortKey(values[i], static_cast<uint32_t>(i));
      if (byte < 7 && key >> (8 * (byte + 1)) != prefix) continue;
      if (const Mass mass = weight(i); mass > 0) {
        atomicAdd(&shared->bins[key >> (8 * byte) & (kBins - 1)], mass);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = 0;
      while (bin + 1 < kBins && shared->bins[bin] < left) left -= shared->bins[bin++];
      shared->left = left;
      shared->prefix = prefix << 8 | static_cast<uint64_t>(bin);
    }
    __syncthreads();
    left = shared->left;
    prefix = shared->prefix;
  }
  return prefix;
}

__global__ void __launch_bounds__(kThreads) LogProbsRow(DeviceLogProbsArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const RowSampling params = args.params[blockIdx.x];
  const size_t size = args.vocabulary_size;
  const float* const adjusted = args.adjusted + blockIdx.x * args.stride;
  float* const out = args.log_probs + blockIdx.x * args.stride;

  if (params.temperature == 0) {  // greedy
    for (size_t i = threadIdx.x; i < size; i += kThreads) out[i] = adjusted[i];
    return;
  }
  float largest = -INFINITY;
  for (size_t i = threadIdx.x; i < size; i += kThreads) largest = fmaxf(largest, adjusted[i]);
  largest = BlockMax(largest, shared->floats);

  // The entries that are kept have keys up to this one.
  uint64_t last = ~uint64_t{0};
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < size) {
    last = SelectKey(adjusted, size, static_cast<Mass>(params.top_k), shared,
                     [](size_t) { return Mass{1}; });
  }
  const auto scaled = [&](size_t i) {
    return __fdiv_rn(__fadd_rn(adjusted[i], -largest), params.temperature);
  };
  if (params.top_p < 1) {
    const uint64_t last_of_top_k = last;
    const auto mass = [&](size_t i) {
      if (DeviceSortKey(adjusted[i], static_cast<uint32_t>(i)) > last_of_top_k) return Mass{0};
      const float units = __fmul_rn(expf(scaled(i)), kMassUnit);
      // A row that is not finite has entries that are not a number here. The row is reported later.
      return units > 0 ? static_cast<Mass>(units) : Mass{0};
    };
    if (threadIdx.x == 0) shared->total = 0;
    __syncthreads();
    Mass sum = 0;
    for (size_t i = threadIdx.x; i < size; i += kThreads) sum += mass(i);
    atomicAdd(&shared->total, sum);
    __syncthreads();
    const Mass total = shared->total;
    const auto wanted =
        static_cast<Mass>(ceil(static_cast<double>(params.top_p) * static_cast<double>(total)));
    const uint64_t last_of_top_p =
        SelectKey(adjusted, size, wanted < total ? wanted : total, shared, mass);
    last = last < last_of_top_p ? last : last_of_top_p;
  }

  const float floor = logf(params.min_p);  // min_p 0: -infinity
  const auto is_kept = [&](size_t i, float x) {
    return DeviceSortKey(adjusted[i], static_cast<uint32_t>(i)) <= last && x >= floor;
  };
  double sum = 0;
  for (size_t i = threadIdx.x; i < size; i += kThreads) {
    const float x = scaled(i);
    if (is_kept(i, x)) sum = __dadd_rn(sum, static_cast<double>(expf(x)));
  }
  sum = BlockSum(sum, shared->doubles);
  const auto log_sum = static_cast<float>(log(sum));
  // From here on, only the thread that overwrites an entry reads it.
  for (size_t i = threadIdx.x; i < size; i += kThreads) {
    const float x = scaled(i);
    out[i] = is_kept(i, x) ? __fadd_rn(x, -log_sum) : -INFINITY;
  }
}

}  // namespace

absl::Status LogProbs(const DeviceLogProbsArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("LogProbs", LogProbsRow,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

}  // namespace tandem
