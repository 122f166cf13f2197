// The most likely token of each row on a GPU. Each thread block handles one row.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/transform/row_scan.cuh"
#include "kernels/sampling/transform/sort_key.cuh"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr int kThreads = 1024;

// One pass finds the smallest key, and the largest magnitude as bits. Magnitudes are ordered like
// their bits, and those of NaN and the infinities are the largest.
__global__ void __launch_bounds__(kThreads) ArgmaxRow(DeviceArgmaxArgs args) {
  const float* const logits = args.logits + blockIdx.x * args.stride;
  const auto size = static_cast<unsigned>(args.vocabulary_size);
  SmallestOfThread smallest;
  unsigned magnitude = 0;
  ScanRow(logits, size, 0, [&](unsigned i, float logit) {
    magnitude = max(magnitude, __float_as_uint(logit) & 0x7FFFFFFFu);
    if (i < size) smallest.Meet(logit, i);
  });
  const bool finite = IsFiniteFloat(__uint_as_float(magnitude));
  const bool all_finite = __syncthreads_and(finite ? 1 : 0) != 0;
  const uint64_t best = BlockMin(smallest.Key(), SharedMemory<uint64_t>());
  if (threadIdx.x == 0) args.token_ids[blockIdx.x] = all_finite ? IdOfKey(best) : -1;
}

}  // namespace

absl::Status Argmax(const DeviceArgmaxArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch(
      "Argmax", ArgmaxRow,
      {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), kWarpSize * sizeof(uint64_t)},
      stream, args);
}

}  // namespace tandem
