#include "kernels/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void Turn(D d, float* HWY_RESTRICT low, float* HWY_RESTRICT high,
                     const float* HWY_RESTRICT cosines, const float* HWY_RESTRICT sines) {
  const auto x = hn::LoadU(d, low);
  const auto y = hn::LoadU(d, high);
  const auto c = hn::LoadU(d, cosines);
  const auto s = hn::LoadU(d, sines);
  hn::StoreU(hn::NegMulAdd(y, s, hn::Mul(x, c)), d, low);
  hn::StoreU(hn::MulAdd(x, s, hn::Mul(y, c)), d, high);
}

void RopeRows(const RopeArgs& args) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const size_t n = hn::Lanes(d);
  const size_t half = args.head_size / 2;
  for (size_t r = 0; r < args.rows; ++r) {
    const float* cosines = args.table + static_cast<size_t>(args.positions[r]) * args.head_size;
    const float* sines = cosines + half;
    for (size_t h = 0; h < args.num_heads; ++h) {
      float* low = args.x + r * args.x_stride + h * args.head_size;
      float* high = low + half;
      size_t i = 0;
      for (; i + n <= half; i += n) Turn(d, low + i, high + i, cosines + i, sines + i);
      for (; i < half; ++i) Turn(d1, low + i, high + i, cosines + i, sines + i);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(RopeRows);

void Rope(const RopeArgs& args) { HWY_DYNAMIC_DISPATCH(RopeRows)(args); }

void RopeReference(const RopeArgs& args) {
  const size_t half = args.head_size / 2;
  for (size_t r = 0; r < args.rows; ++r) {
    const float* cosines = args.table + static_cast<size_t>(args.positions[r]) * args.head_size;
    for (size_t h = 0; h < args.num_heads; ++h) {
      float* head = args.x + r * args.x_stride + h * args.head_size;
      for (size_t i = 0; i < half; ++i) {
        const double x = head[i], y = head[i + half];
        const double c = cosines[i], s = cosines[i + half];
        head[i] = static_cast<float>(x * c - y * s);
        head[i + half] = static_cast<float>(y * c + x * s);
      }
    }
  }
}

}  // namespace tandem
#endif  // HWY_ONCE
