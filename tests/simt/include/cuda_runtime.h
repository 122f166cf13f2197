// CUDA's language and the part of its runtime that Tandem uses, on a host: see tests/simt/simt.h
// for the language and tests/simt/fake_runtime.h for the runtime. Names and signatures are those of
// CUDA 13 (CUDA C++ Programming Guide; CUDA Runtime API).
#ifndef TANDEM_TESTS_SIMT_INCLUDE_CUDA_RUNTIME_H_
#define TANDEM_TESTS_SIMT_INCLUDE_CUDA_RUNTIME_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/simt/simt.h"

#define TANDEM_SIMT 1

// ---------------------------------------------------------------- language

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

using dim3 = simt::Extent;

namespace simt {

// Built-in variables. Each component is looked up when it is read. They are not macros, because
// launch configurations have members with the same names.
template <auto& kOf>
struct BuiltIn {
  struct X {
    operator unsigned() const { return kOf().x; }  // NOLINT(google-explicit-constructor)
  } x;
  struct Y {
    operator unsigned() const { return kOf().y; }  // NOLINT(google-explicit-constructor)
  } y;
  struct Z {
    operator unsigned() const { return kOf().z; }  // NOLINT(google-explicit-constructor)
  } z;
};

}  // namespace simt

inline constexpr simt::BuiltIn<simt::ThreadIndex> threadIdx{};
inline constexpr simt::BuiltIn<simt::BlockIndex> blockIdx{};
inline constexpr simt::BuiltIn<simt::BlockExtent> blockDim{};
inline constexpr simt::BuiltIn<simt::GridExtent> gridDim{};

// NOLINTBEGIN: CUDA's names
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline void __syncthreads() { simt::SyncThreads(); }
inline int __syncthreads_count(int predicate) { return simt::SyncThreadsCount(predicate != 0); }
inline int __syncthreads_or(int predicate) { return simt::SyncThreadsCount(predicate != 0) > 0; }
inline int __syncthreads_and(int predicate) { return simt::SyncThreadsCount(predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { simt::Ballot(mask, false); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return simt::ShuffleFrom(mask, value,
                           [=](int lane) { return lane / width * width + source % width; });
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return simt::ShuffleFrom(mask, value, [=](int lane) {
    const int source = lane ^ lanes;
    return source / width > lane / width ? lane : source;
  });
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return simt::ShuffleFrom(mask, value, [=](int lane) {
    const int source = lane + static_cast<int>(delta);
    return source / width == lane / width ? source : lane;
  });
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return simt::ShuffleFrom(mask, value, [=](int lane) {
    const int source = lane - static_cast<int>(delta);
    return source >= lane / width * width ? source : lane;
  });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return simt::Ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return simt::Ballot(mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return simt::Ballot(mask, predicate != 0) == mask;
}

// Threads run one at a time, so plain code is atomic.
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::exchange(*address, static_cast<T>(*address + value));
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return std::exchange(*address, std::max(*address, value));
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return std::exchange(*address, static_cast<T>(*address | value));
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1; }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
inline int min(int a, int b) { return std::min(a, b); }
inline int max(int a, int b) { return std::max(a, b); }
inline unsigned min(unsigned a, unsigned b) { return std::min(a, b); }
inline unsigned max(unsigned a, unsigned b) { return std::max(a, b); }
// NOLINTEND

#include "tests/simt/fake_runtime.h"

#endif  // TANDEM_TESTS_SIMT_INCLUDE_CUDA_RUNTIME_H_
