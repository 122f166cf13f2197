// Device code that the kernels share: shared memory, reductions in a fixed order, weights as
// floats.
#ifndef TANDEM_KERNELS_DEVICE_DEVICE_CODE_CUH_
#define TANDEM_KERNELS_DEVICE_DEVICE_CODE_CUH_

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/dtype.h"

namespace tandem {

// Stands before a loop over an array that belongs to one thread. The array can be in registers only
// if the loop is unrolled.
// TANDEM_NO_UNROLL stands before a loop whose turns would take too many registers side by side.
#ifdef TANDEM_SIMT
#define TANDEM_UNROLL
#define TANDEM_NO_UNROLL
#else
#define TANDEM_UNROLL _Pragma("unroll")
#define TANDEM_NO_UNROLL _Pragma("unroll 1")
#endif

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarpSize = 32;

// The thread block's dynamic shared memory, 16-byte aligned. Kernels take all their shared memory
// from here, so that tests can detect reads of memory that was never written or that lies past its
// end.
template <typename T>
__device__ T* SharedMemory() {
#ifdef TANDEM_SIMT
  return static_cast<T*>(simt::SharedMemory());
#else
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#endif
}

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ inline int Warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }

// Lets the stream's next kernel start, and waits until all earlier kernels have ended. Every thread
// of a kernel that is launched with LaunchShape::starts_early calls this function once. Before the
// call, it may read only what no kernel writes, such as weights.
__device__ inline void WaitForEarlierKernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Reduces over a warp by a butterfly: each lane combines its value with that of the lane 16, 8, 4,
// 2 and 1 away. All lanes get the same bits if combine(a, b) is combine(b, a). The shim brings all
// values together at once (simt::Butterfly), which takes a fifth of the time.
template <typename T, typename Combine>
__device__ T WarpReduce(T value, const Combine& combine) {
#ifdef TANDEM_SIMT
  return simt::Butterfly(value, combine);
#else
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
#endif
}
__device__ inline float WarpSum(float value) {
  return WarpReduce(value, [](float a, float b) { return __fadd_rn(a, b); });
}
__device__ inline double WarpSum(double value) {
  return WarpReduce(value, [](double a, double b) { return __dadd_rn(a, b); });
}
__device__ inline float WarpMax(float value) {
  return WarpReduce(value, [](float a, float b) { return fmaxf(a, b); });
}
__device__ inline uint64_t WarpMin(uint64_t value) {
  return WarpReduce(value, [](uint64_t a, uint64_t b) { return a < b ? a : b; });
}

// Reduces over a thread block of at most 32 whole warps: first over each warp, then over the warps'
// sums in the order of the warps. All threads get the same bits.
//   scratch  [32]  shared memory that may be used again at once
template <typename T>
__device__ T BlockSum(T value, T* scratch) {
  value = WarpSum(value);
  if (Lane() == 0) scratch[Warp()] = value;
  __syncthreads();
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpSum(Lane() < num_warps ? scratch[Lane()] : T(0));
  __syncthreads();
  return value;
}
__device__ inline float BlockMax(float value, float* scratch) {
  value = WarpMax(value);
  if (Lane() == 0) scratch[Warp()] = value;
  __syncthreads();
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpMax(scratch[Lane() < num_warps ? Lane() : 0]);
  __syncthreads();
  return value;
}

__device__ inline uint64_t BlockMin(uint64_t value, uint64_t* scratch) {
  value = WarpMin(value);
  if (Lane() == 0) scratch[Warp()] = value;
  __syncthreads();
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpMin(scratch[Lane() < num_warps ? Lane() : 0]);
  __syncthreads();
  return value;
}

// Only NaN and the infinities have an exponent of all ones.
__device__ inline bool IsFiniteFloat(float value) {
  return (__float_as_uint(value) & 0x7F800000u) != 0x7F800000u;
}

// Converts a weight or a value of a KV cache exactly to a float, and a float to the nearest value
// of the type, with ties to even.
template <DType kType>
struct Weight;
template <>
struct Weight<DType::kF32> {
  using Stored = float;
  __device__ static float Widen(float stored) { return stored; }
  __device__ static float Narrow(float value) { return value; }
};
template <>
struct Weight<DType::kBF16> {
  using Stored = uint16_t;
  __device__ static float Widen(uint16_t stored) {
    return __uint_as_float(static_cast<unsigned>(stored) << 16);
  }
  __device__ static uint16_t Narrow(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
      return static_cast<uint16_t>(bits >> 16 | 0x40u);  // NaN stays NaN
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
};
template <>
struct Weight<DType::kF16> {
  using Stored = uint16_t;
  __device__ static float Widen(uint16_t stored) { return __half2float(__ushort_as_half(stored)); }
  __device__ static uint16_t Narrow(float value) {
    return __half_as_ushort(__float2half_rn(value));
  }
};

inline constexpr int kEight = 8;

// Weights are read once per pass. They should not evict data that is read again, such as the KV
// cache.
enum class Reads { kOnce, kAgain };

template <Reads kReads, typename Vector>
__device__ Vector LoadVector(const void* from) {
  const auto* const vector = static_cast<const Vector*>(from);
  return kReads == Reads::kOnce ? __ldcs(vector) : *vector;
}

// Loads eight weights as floats: one 16-byte load for types of two bytes, two loads for F32. `from`
// is 16-byte aligned.
template <DType kType, Reads kReads>
__device__ void LoadEight(const typename Weight<kType>::Stored* from, float* to) {
  if constexpr (kType == DType::kF32) {
    const auto low = LoadVector<kReads, float4>(from);
    const auto high = LoadVector<kReads, float4>(from + 4);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  } else {
    const auto packed = LoadVector<kReads, uint4>(from);
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = Weight<kType>::Widen(static_cast<uint16_t>(words[i]));
      to[2 * i + 1] = Weight<kType>::Widen(static_cast<uint16_t>(words[i] >> 16));
    }
  }
}

// Calls `body` with a std::integral_constant of the dtype.
template <typename Body>
auto WithType(DType dtype, Body body) {
  switch (dtype) {
    case DType::kF32:
      return body(std::integral_constant<DType, DType::kF32>());
    case DType::kF16:
      return body(std::integral_constant<DType, DType::kF16>());
    default:
      return body(std::integral_constant<DType, DType::kBF16>());
  }
}

// The activation SiLU: x / (1 + exp(-x)).
__device__ inline float Silu(float x) { return __fdiv_rn(x, __fadd_rn(1.0f, expf(-x))); }

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_DEVICE_CODE_CUH_
