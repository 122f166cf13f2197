// Rotary position embedding on a GPU, and the way of keys and values into the cache. Both are one
// kernel, because each of them takes less time than a launch.
#include "kernels/attention.h"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"

namespace tandem {
namespace {

constexpr unsigned kThreads = 128;

// Each thread has two dimensions of a head that are half a head apart. The heads of a row are those
// of its queries, then those of its keys, and then those of its values. All threads load all
// numbers first, whether they need them or not, so that no load waits for another one's branch.
// Grid: (blocks of the pairs of dimensions of a row, rows).
template <DType kType>
__global__ void __launch_bounds__(kThreads) RopeAndStoreRow(DeviceRopeAndStoreArgs args) {
  WaitForEarlierKernels();
  const DeviceKv& kv = args.kv;
  const auto half = static_cast<unsigned>(kv.head_size / 2);
  const unsigned pair = blockIdx.x * kThreads + threadIdx.x;
  const size_t head = pair / half;
  const size_t first_key = args.num_heads;
  const size_t first_value = first_key + kv.num_kv_heads;
  if (head >= first_value + kv.num_kv_heads) return;
  const size_t row = blockIdx.y;
  const size_t dimension = pair % half;
  float* const from = args.qkv + row * args.qkv_stride + head * kv.head_size + dimension;
  const float low = from[0];
  const float high = from[half];
  const auto cache_row = static_cast<size_t>(args.rows.cache_rows[row]);
  const float* const angles =
      args.table + static_cast<size_t>(args.positions[row]) * kv.head_size + dimension;
  const auto page = static_cast<size_t>(args.rows.PageTable(row)[cache_row / kKeyBlock]);
  const float cosine = angles[0];
  const float sine = angles[half];

  const float turned_low = __fmaf_rn(low, cosine, -__fmul_rn(high, sine));
  const float turned_high = __fmaf_rn(high, cosine, __fmul_rn(low, sine));
  if (head < first_key) {
    from[0] = turned_low;
    from[half] = turned_high;
    return;
  }
  const bool is_key = head < first_value;
  const size_t kv_head = head - (is_key ? first_key : first_value);
  auto* const to = static_cast<typename Weight<kType>::Stored*>(kv.pool) +
                   kv.KeysAt(page, kv_head, cache_row % kKeyBlock) +
                   (is_key ? 0 : kv.ValueOffset()) + dimension;
  to[0] = Weight<kType>::Narrow(is_key ? turned_low : low);
  to[half] = Weight<kType>::Narrow(is_key ? turned_high : high);
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
