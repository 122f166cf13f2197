// The step of RoPE for two dimensions of a head, and their way into the cache, on a GPU.
#ifndef TANDEM_KERNELS_ROPE_CUDA_CUH_
#define TANDEM_KERNELS_ROPE_CUDA_CUH_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/device/device_code.cuh"

namespace tandem {

// The numbers that two dimensions of a head, half a head apart, need to be turned and stored. They
// do not depend on the dimensions' values, so they can be loaded before those are known.
struct RopePair {
  size_t head;       // among the row's queries, then its keys, then its values
  size_t dimension;  // the first one
  size_t cache_row;
  size_t page;
  float cosine, sine;
};

// Loads them all at once, whether the head needs them or not, so that no load waits for another
// one's branch.
//   pair  of the row: head * head_size / 2 + dimension
__device__ inline RopePair LoadRopePair(const DeviceRopeAndStoreArgs& args, size_t row,
                                        size_t pair) {
  const auto half = static_cast<unsigned>(args.kv.head_size / 2);
  RopePair known;
  known.head = static_cast<unsigned>(pair) / half;
  known.dimension = static_cast<unsigned>(pair) % half;
  known.cache_row = static_cast<size_t>(args.rows.cache_rows[row]);
  const float* const angles =
      args.table + static_cast<size_t>(args.positions[row]) * args.kv.head_size + known.dimension;
  known.page = static_cast<size_t>(args.rows.PageTable(row)[known.cache_row / kKeyBlock]);
  known.cosine = angles[0];
  known.sine = angles[half];
  return known;
}

// Turns the two dimensions of a query, and writes them where queries are. Turns those of a key, and
// writes them to the cache. Those of a value go to the cache as they are.
template <DType kType>
__device__ inline void TurnAndStore(const DeviceRopeAndStoreArgs& args, size_t row,
                                    const RopePair& known, float low, float high) {
  const DeviceKv& kv = args.kv;
  const size_t half = kv.head_size / 2;
  const size_t first_value = args.num_heads + kv.num_kv_heads;
  const float turned_low = __fmaf_rn(low, known.cosine, -__fmul_rn(high, known.sine));
  const float turned_high = __fmaf_rn(high, known.cosine, __fmul_rn(low, known.sine));
  if (known.head < args.num_heads) {
    float* const to =
        args.qkv + row * args.qkv_stride + known.head * kv.head_size + known.dimension;
    to[0] = turned_low;
    to[half] = turned_high;
    return;
  }
  const bool is_key = known.head < first_value;
  const size_t kv_head = known.head - (is_key ? args.num_heads : first_value);
  auto* const to = static_cast<typename Weight<kType>::Stored*>(kv.pool) +
                   kv.KeysAt(known.page, kv_head, known.cache_row % kKeyBlock) +
                   (is_key ? 0 : kv.ValueOffset()) + known.dimension;
  to[0] = Weight<kType>::Narrow(is_key ? turned_low : low);
  to[half] = Weight<kType>::Narrow(is_key ? turned_high : high);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROPE_CUDA_CUH_
