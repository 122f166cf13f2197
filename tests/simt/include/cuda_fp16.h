// CUDA's half precision on a host: storage, exact widening, rounding to the nearest (ties to even).
#ifndef TANDEM_TESTS_SIMT_INCLUDE_CUDA_FP16_H_
#define TANDEM_TESTS_SIMT_INCLUDE_CUDA_FP16_H_

#include <bit>
#include <cmath>
#include <cstdint>

// NOLINTBEGIN: CUDA's names
struct __half {
  uint16_t bits;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half half) {
  const uint32_t sign = uint32_t{half.bits} >> 15 << 31;
  const uint32_t exponent = half.bits >> 10 & 31;
  const uint32_t fraction = half.bits & 1023;
  if (exponent == 0)
    return std::copysign(static_cast<float>(fraction) * 0x1p-24f, std::bit_cast<float>(sign));
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}
inline unsigned short __half_as_ushort(__half half) { return half.bits; }
inline __half __float2half_rn(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return {static_cast<uint16_t>(sign | 0x7E00)};
  if (size >= 65520)
    return {static_cast<uint16_t>(sign | 0x7C00)};  // rounds past the largest number
  // The value in units of the last place: 2^-24 for a subnormal number, and otherwise given by the
  // exponent. The sum may carry into the exponent.
  const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
  const auto fraction = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return {static_cast<uint16_t>(
      sign | (fraction + (size < 0x1p-14f ? 0 : (static_cast<uint32_t>(exponent + 14) << 10))))};
}
// NOLINTEND

#endif  // TANDEM_TESTS_SIMT_INCLUDE_CUDA_FP16_H_
