// Rotary position embedding on a GPU. Each thread rotates one pair of dimensions.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/rope.h"

namespace tandem {
namespace {

constexpr unsigned kThreads = 128;

// Grid: (blocks of the pairs of a row, rows).
__global__ void __launch_bounds__(kThreads) RopeRow(RopeArgs args) {
  const size_t half = args.head_size / 2;
  const size_t pair = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pair >= args.num_heads * half) return;
  const size_t dimension = pair % half;
  const float* const angles =
      args.table + static_cast<size_t>(args.positions[blockIdx.y]) * args.head_size;
  const float cosine = angles[dimension];
  const float sine = angles[half + dimension];
  float* const head = args.x + blockIdx.y * args.x_stride + pair / half * args.head_size;
  const float low = head[dimension];
  const float high = head[half + dimension];
  head[dimension] = __fmaf_rn(low, cosine, -__fmul_rn(high, sine));
  head[half + dimension] = __fmaf_rn(high, cosine, __fmul_rn(low, sine));
}

}  // namespace

absl::Status Rope(const RopeArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  const size_t pairs = args.num_heads * args.head_size / 2;
  return Launch("Rope", RopeRow,
                {dim3(static_cast<unsigned>((pairs + kThreads - 1) / kThreads),
                      static_cast<unsigned>(args.rows)),
                 dim3(kThreads)},
                stream, args);
}

}  // namespace tandem
