#include "kernels/embedding.h"

#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// `Half` is hwy::bfloat16_t or hwy::float16_t. The values go through an aligned buffer, because a
// table in a file may start at an odd byte.
template <typename Half>
void WidenRow(const unsigned char* row, size_t size, float* out) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<Half, decltype(d)> half_d;
  const size_t n = hn::Lanes(d);
  HWY_ALIGN Half halves[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN float floats[HWY_MAX_BYTES / sizeof(float)];
  size_t i = 0;
  for (; i + n <= size; i += n) {
    std::memcpy(halves, row + i * sizeof(Half), n * sizeof(Half));
    hn::StoreU(hn::PromoteTo(d, hn::Load(half_d, halves)), d, out + i);
  }
  if (i < size) {
    std::memcpy(halves, row + i * sizeof(Half), (size - i) * sizeof(Half));
    hn::Store(hn::PromoteTo(d, hn::Load(half_d, halves)), d, floats);
    std::memcpy(out + i, floats, (size - i) * sizeof(float));
  }
}

void EmbedRows(const EmbedArgs& args) {
  const size_t row_bytes = args.size * SizeOf(args.dtype);
  for (size_t r = 0; r < args.rows; ++r) {
    const unsigned char* row = static_cast<const unsigned char*>(args.table) +
                               static_cast<size_t>(args.ids[r]) * row_bytes;
    float* out = args.out + r * args.out_stride;
    switch (args.dtype) {
      case DType::kF32:
        std::memcpy(out, row, row_bytes);
        break;
      case DType::kBF16:
        WidenRow<hwy::bfloat16_t>(row, args.size, out);
        break;
      case DType::kF16:
        WidenRow<hwy::float16_t>(row, args.size, out);
        break;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
namespace {

float Widen(const unsigned char* element, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  if (dtype == DType::kBF16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  // IEEE 754 binary16: 1 sign bit, 5 of exponent (bias 15), 10 of fraction.
  const float sign = (bits >> 15) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31;
  const float fraction = static_cast<float>(bits & 1023) / 1024.0f;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -14);
  return sign * std::ldexp(1.0f + fraction, exponent - 15);
}

}  // namespace

HWY_EXPORT(EmbedRows);

void Embed(const EmbedArgs& args) { HWY_DYNAMIC_DISPATCH(EmbedRows)(args); }

void EmbedReference(const EmbedArgs& args) {
  const size_t element_bytes = SizeOf(args.dtype);
  for (size_t r = 0; r < args.rows; ++r) {
    const unsigned char* row = static_cast<const unsigned char*>(args.table) +
                               static_cast<size_t>(args.ids[r]) * args.size * element_bytes;
    for (size_t i = 0; i < args.size; ++i) {
      args.out[r * args.out_stride + i] = Widen(row + i * element_bytes, args.dtype);
    }
  }
}

}  // namespace tandem
#endif  // HWY_ONCE
