// The activation SiLU of a vector of floats, for the CPU kernels of every instruction set.
// Highway includes this file once for each target.
#if defined(TANDEM_KERNELS_SUPPORT_SILU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_SUPPORT_SILU_INL_H_
#undef TANDEM_KERNELS_SUPPORT_SILU_INL_H_
#else
#define TANDEM_KERNELS_SUPPORT_SILU_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

// Returns x / (1 + exp(-x)).
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  // Highway's Exp does not saturate. Past 88 the quotient is 0 to within a denormal number anyway.
  const auto e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), e));
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
