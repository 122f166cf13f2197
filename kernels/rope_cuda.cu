// Rotary position embedding on a GPU, and the way of keys and values into the cache. Both are one
// kernel, because each of them takes less time than a launch.
#include "kernels/attention.h"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/rope_cuda.cuh"

namespace tandem {
namespace {

constexpr unsigned kThreads = 128;

// Each thread has two dimensions of a head that are half a head apart. The heads of a row are those
// of its queries, then those of its keys, and then those of its values.
// Grid: (blocks of the pairs of dimensions of a row, rows).
template <DType kType>
__global__ void __launch_bounds__(kThreads) RopeAndStoreRow(DeviceRopeAndStoreArgs args) {
  WaitForEarlierKernels();
  const auto half = static_cast<unsigned>(args.kv.head_size / 2);
  const unsigned pair = blockIdx.x * kThreads + threadIdx.x;
  if (pair / half >= args.num_heads + 2 * args.kv.num_kv_heads) return;
  const size_t row = blockIdx.y;
  const float* const from =
      args.qkv + row * args.qkv_stride + pair / half * args.kv.head_size + pair % half;
  const float low = from[0];
  const float high = from[half];
  TurnAndStore<kType>(args, row, LoadRopePair(args, row, pair), low, high);
}

}  // namespace

absl::Status RopeAndStoreKv(const DeviceRopeAndStoreArgs& args, CudaStream stream) {
  if (args.rows.rows == 0) return absl::OkStatus();
  const size_t pairs = (args.num_heads + 2 * args.kv.num_kv_heads) * (args.kv.head_size / 2);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>((pairs + kThreads - 1) / kThreads),
                                          static_cast<unsigned>(args.rows.rows)),
                             .block = dim3(kThreads),
                             .starts_early = true};
  return WithType(args.kv.dtype, [&](auto type) {
    return Launch("RopeAndStoreKv", RopeAndStoreRow<decltype(type)::value>, shape, stream, args);
  });
}

}  // namespace tandem
