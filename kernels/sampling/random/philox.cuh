// Philox4x32-10 and the keyed uniforms on a device: the same bits as philox.cc.
#ifndef TANDEM_KERNELS_SAMPLING_RANDOM_PHILOX_CUH_
#define TANDEM_KERNELS_SAMPLING_RANDOM_PHILOX_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/sampling/random/philox.h"

namespace tandem {

__device__ inline uint4 DevicePhilox4x32(uint4 counter, uint2 key) {
  constexpr uint64_t kMultiplier0 = kPhiloxMultipliers[0];
  constexpr uint64_t kMultiplier1 = kPhiloxMultipliers[1];
  constexpr uint32_t kWeyl0 = kPhiloxWeyl[0];
  constexpr uint32_t kWeyl1 = kPhiloxWeyl[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter.x;
    const uint64_t product1 = kMultiplier1 * counter.z;
    counter = make_uint4(
        static_cast<uint32_t>(product1 >> 32) ^ counter.y ^ key.x, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter.w ^ key.y, static_cast<uint32_t>(product0));
    key.x += kWeyl0;
    key.y += kWeyl1;
  }
  return counter;
}

// Returns a number on [0, 1) with 53 bits of two words.
__device__ inline double UniformOfWords(uint32_t upper, uint32_t lower) {
  return static_cast<double>((static_cast<uint64_t>(upper) << 32 | lower) >> 11) * 0x1p-53;
}

// Uniform (philox.h).
__device__ inline double DeviceUniform(const DrawKey& key, DrawPurpose purpose) {
  const uint32_t kind = static_cast<uint32_t>(purpose) | static_cast<uint32_t>(key.drafter) << 8 |
                        static_cast<uint32_t>(key.sibling) << 16;
  const uint4 words = DevicePhilox4x32(
      make_uint4(0, kind, static_cast<uint32_t>(key.position),
                 static_cast<uint32_t>(key.position >> 32)),
      make_uint2(static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)));
  return UniformOfWords(words.x, words.y);
}

// The words of CoupledUniform (coupled_noise.h) for tokens 2 * pair (x, y) and 2 * pair + 1 (z, w).
__device__ inline uint4 CoupledWords(const DrawKey& key, uint32_t pair) {
  return DevicePhilox4x32(
      make_uint4(pair, static_cast<uint32_t>(DrawPurpose::kCoupled),
                 static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.position >> 32)),
      make_uint2(static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)));
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RANDOM_PHILOX_CUH_
