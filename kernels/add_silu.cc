#include "kernels/add_silu.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add_silu.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "hwy/highway.h"
#include "kernels/support/silu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void AddSiluVector(D d, const float* HWY_RESTRICT x, float* HWY_RESTRICT y) {
  hn::StoreU(hn::Add(hn::LoadU(d, x), Silu(d, hn::LoadU(d, y))), d, y);
}

void AddSiluRows(const AddSiluArgs& args) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const size_t n = hn::Lanes(d);
  for (size_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* y = args.y + r * args.y_stride;
    size_t i = 0;
    for (; i + n <= args.size; i += n) AddSiluVector(d, x + i, y + i);
    for (; i < args.size; ++i) AddSiluVector(d1, x + i, y + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(AddSiluRows);

void AddSilu(const AddSiluArgs& args) { HWY_DYNAMIC_DISPATCH(AddSiluRows)(args); }

void AddSiluReference(const AddSiluArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t i = 0; i < args.size; ++i) {
      float& y = args.y[r * args.y_stride + i];
      const double z = y;
      y = static_cast<float>(args.x[r * args.x_stride + i] + z / (1.0 + std::exp(-z)));
    }
  }
}

}  // namespace tandem
#endif  // HWY_ONCE
