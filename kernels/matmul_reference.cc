#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"

namespace tandem {
namespace {

double HalfToDouble(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double WeightAt(const void* w, DType dtype, size_t index) {
  const char* at = static_cast<const char*>(w) + index * SizeOf(dtype);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::kF16 ? HalfToDouble(bits)
                              : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace

void MatMulReference(const MatMulArgs& args) {
  for (size_t m = 0; m < args.rows; ++m) {
    for (size_t n = 0; n < args.out_features; ++n) {
      double sum = 0;
      for (size_t k = 0; k < args.in_features; ++k) {
        sum +=
            args.x[m * args.x_stride + k] * WeightAt(args.w, args.dtype, n * args.in_features + k);
      }
      if (args.bias != nullptr) sum += args.bias[n];
      float& out = args.out[m * args.out_stride + n];
      out = static_cast<float>(args.add_to_out ? out + sum : sum);
    }
  }
}

}  // namespace tandem
