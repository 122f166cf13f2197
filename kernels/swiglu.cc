#include "kernels/swiglu.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu.cc"
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
HWY_INLINE void SwiGluVector(D d, float* HWY_RESTRICT gate, const float* HWY_RESTRICT up) {
  hn::StoreU(hn::Mul(Silu(d, hn::LoadU(d, gate)), hn::LoadU(d, up)), d, gate);
}

void SwiGluRows(const SwiGluArgs& args) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const size_t n = hn::Lanes(d);
  for (size_t r = 0; r < args.rows; ++r) {
    float* gate = args.gate + r * args.gate_stride;
    const float* up = args.up + r * args.up_stride;
    size_t i = 0;
    for (; i + n <= args.size; i += n) SwiGluVector(d, gate + i, up + i);
    for (; i < args.size; ++i) SwiGluVector(d1, gate + i, up + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(SwiGluRows);

void SwiGlu(const SwiGluArgs& args) { HWY_DYNAMIC_DISPATCH(SwiGluRows)(args); }

void SwiGluReference(const SwiGluArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t i = 0; i < args.size; ++i) {
      float& gate = args.gate[r * args.gate_stride + i];
      const double x = gate;
      gate = static_cast<float>(x / (1.0 + std::exp(-x)) * args.up[r * args.up_stride + i]);
    }
  }
}

}  // namespace tandem
#endif  // HWY_ONCE
