// The most likely token of each row on a GPU. Each thread block handles one row.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/transform/sort_key.cuh"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads) ArgmaxRow(DeviceArgmaxArgs args) {
  const float* const logits = args.logits + blockIdx.x * args.stride;
  bool finite = true;
  for (size_t i = threadIdx.x; i < args.vocabulary_size; i += kThreads) {
    finite = finite && IsFiniteFloat(logits[i]);
  }
  const bool all_finite = __syncthreads_and(finite ? 1 : 0) != 0;
  const uint64_t best = SmallestKey(logits, args.vocabulary_size, 0, SharedMemory<uint64_t>());
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
