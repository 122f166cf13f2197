// Passes of a thread block over a row of floats, with many loads in flight.
//
// The row is cut into groups of four floats. Thread t has the groups t, t + T, t + 2T, ... of T
// threads and takes them in this order. The order does not depend on the row's address, so the bits
// of a thread's sum do not either.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_ROW_SCAN_CUH_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_ROW_SCAN_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_code.cuh"

namespace tandem {

inline constexpr unsigned kGroup = 4;  // floats that one load reads
// Loads of a thread before it uses the first one. Passes with long bodies have two, because the
// body is compiled for each float.
inline constexpr unsigned kManyInFlight = 4;
inline constexpr unsigned kTwoInFlight = 2;

__device__ inline bool AllowsGroups(const float* row) {
  return reinterpret_cast<uintptr_t>(row) % sizeof(float4) == 0;
}

// Loads the group that begins at index `first`. Entries past the end of the row are `fill`.
__device__ inline float4 LoadGroup(const float* row, unsigned size, unsigned first, bool by_group,
                                   float fill) {
  if (by_group && first + kGroup <= size) return *reinterpret_cast<const float4*>(row + first);
  const float* const from = row + first;
  const unsigned count = first < size ? size - first : 0;
  return make_float4(count > 0 ? from[0] : fill, count > 1 ? from[1] : fill,
                     count > 2 ? from[2] : fill, count > 3 ? from[3] : fill);
}

// Loads kInFlight of the thread's groups. The first one begins at index `first`.
template <unsigned kInFlight>
__device__ inline void LoadGroups(const float* row, unsigned size, unsigned first, bool by_group,
                                  float fill, float4* groups) {
  const unsigned step = kGroup * blockDim.x;
  if (by_group && first + (kInFlight - 1) * step + kGroup <= size) {
    TANDEM_UNROLL
    for (unsigned j = 0; j < kInFlight; ++j) {
      groups[j] = *reinterpret_cast<const float4*>(row + first + j * step);
    }
    return;
  }
  TANDEM_UNROLL
  for (unsigned j = 0; j < kInFlight; ++j) {
    groups[j] = LoadGroup(row, size, first + j * step, by_group, fill);
  }
}

// Calls body(first, group) for each group of the thread. `first` is the index of the group's first
// entry. Entries past the end of the row are `fill`, and whole groups may lie there.
// PRECOND: size < 2^31.
template <unsigned kInFlight = kManyInFlight, typename Body>
__device__ void ScanGroups(const float* row, size_t size, float fill, Body body) {
  const auto end = static_cast<unsigned>(size);
  const unsigned step = kGroup * blockDim.x;
  const bool by_group = AllowsGroups(row);
  for (unsigned first = kGroup * threadIdx.x; first < end; first += kInFlight * step) {
    float4 groups[kInFlight];
    LoadGroups<kInFlight>(row, end, first, by_group, fill, groups);
    TANDEM_UNROLL
    for (unsigned j = 0; j < kInFlight; ++j) body(first + j * step, groups[j]);
  }
}

// Calls body(i, value) for each entry of the thread's groups. Past the end of the row, the value is
// `fill`. PRECOND: size < 2^31.
template <unsigned kInFlight = kManyInFlight, typename Body>
__device__ void ScanRow(const float* row, size_t size, float fill, Body body) {
  ScanGroups<kInFlight>(row, size, fill, [&](unsigned first, const float4& group) {
    body(first, group.x);
    body(first + 1, group.y);
    body(first + 2, group.z);
    body(first + 3, group.w);
  });
}

// Writes to[i] = map(i, from[i]). Each thread writes only entries that no other thread reads, and
// reads them before. `to` may therefore be `from`. PRECOND: size < 2^31.
template <typename Map>
__device__ void MapRow(const float* from, float* to, size_t size, Map map) {
  const auto end = static_cast<unsigned>(size);
  const unsigned step = kGroup * blockDim.x;
  const bool loads_groups = AllowsGroups(from);
  const bool stores_groups = AllowsGroups(to);
  for (unsigned first = kGroup * threadIdx.x; first < end; first += kTwoInFlight * step) {
    float4 groups[kTwoInFlight];
    LoadGroups<kTwoInFlight>(from, end, first, loads_groups, 0, groups);
    TANDEM_UNROLL
    for (unsigned j = 0; j < kTwoInFlight; ++j) {
      const unsigned i = first + j * step;
      const float4 group = groups[j];
      const float4 mapped = make_float4(map(i, group.x), map(i + 1, group.y), map(i + 2, group.z),
                                        map(i + 3, group.w));
      if (stores_groups && i + kGroup <= end) {
        *reinterpret_cast<float4*>(to + i) = mapped;
        continue;
      }
      float* const at = to + i;
      const unsigned count = i < end ? end - i : 0;
      if (count > 0) at[0] = mapped.x;
      if (count > 1) at[1] = mapped.y;
      if (count > 2) at[2] = mapped.z;
      if (count > 3) at[3] = mapped.w;
    }
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_ROW_SCAN_CUH_
