// BF16 parts of floats, computed on the host (kernels/device/bf16_rows.h).
#ifndef TANDEM_TESTS_CUDA_KERNELS_BF16_PARTS_H_
#define TANDEM_TESTS_CUDA_KERNELS_BF16_PARTS_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::testing {

inline float WidenBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Returns the nearest BF16, with ties to even. PRECOND: the value is finite and not near the
// largest float.
inline float NearestBf16(float value) {
  const float down = WidenBf16(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  const float up = WidenBf16(static_cast<uint16_t>((std::bit_cast<uint32_t>(value) >> 16) + 1));
  const double to_down = std::abs(double{value} - double{down});
  const double to_up = std::abs(double{value} - double{up});
  if (to_down != to_up) return to_down < to_up ? down : up;
  return (std::bit_cast<uint32_t>(down) >> 16) % 2 == 0 ? down : up;
}

// Returns [num_parts, values]: each value rounded to BF16, or its three parts. A value that is not
// finite keeps its leading bits.
inline std::vector<uint16_t> Bf16PartsOf(std::span<const float> values, int num_parts) {
  const auto leading = [](float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  };
  std::vector<uint16_t> parts(static_cast<size_t>(num_parts) * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    float rest = num_parts == 1 && std::isfinite(values[i]) ? NearestBf16(values[i]) : values[i];
    for (int part = 0; part < num_parts; ++part) {
      const uint16_t bits = leading(rest);
      // A NaN whose leading bits are those of an infinity.
      parts[static_cast<size_t>(part) * values.size() + i] =
          std::isnan(rest) ? static_cast<uint16_t>(bits | 0x40) : bits;
      rest -= WidenBf16(bits);
    }
  }
  return parts;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_CUDA_KERNELS_BF16_PARTS_H_
