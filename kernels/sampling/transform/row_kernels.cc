#include "kernels/sampling/transform/row_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/transform/row_kernels.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// After highway.h, once for each target.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::row {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using DD = hn::ScalableTag<double>;
using VF = hn::Vec<DF>;
using VD = hn::Vec<DD>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kExpUnderflow = -104.0f;  // exp of a smaller number is 0 in float

// Calls f(vector, index of its first lane) for the whole row. The last vector is filled up with
// -infinity.
template <class F>
HWY_INLINE void Visit(const float* x, size_t n, const F& f) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) f(hn::LoadU(d, x + i), i);
  if (i < n) {
    HWY_ALIGN float tail[hn::MaxLanes(d)];
    hn::Store(hn::Set(d, kMinusInfinity), d, tail);
    std::copy(x + i, x + n, tail);
    f(hn::Load(d, tail), i);
  }
}

// out = f(vector, index) for the whole row, in the same way. x and out may be the same memory.
template <class F>
HWY_INLINE void Map(const float* x, size_t n, float* out, const F& f) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i), i), d, out + i);
  if (i < n) {
    HWY_ALIGN float tail[hn::MaxLanes(d)];
    hn::Store(hn::Set(d, kMinusInfinity), d, tail);
    std::copy(x + i, x + n, tail);
    hn::Store(f(hn::Load(d, tail), i), d, tail);
    std::copy(tail, tail + (n - i), out + i);
  }
}

// The halves of a vector of floats as doubles. Highway's scalar target has one lane of either type
// and no upper half.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE VD LowerAsDouble(VF v) { return hn::PromoteTo(DD(), v); }
HWY_INLINE VD UpperAsDouble(VF) { return hn::Zero(DD()); }
HWY_INLINE void StoreHalves(VD lower, VD, double* out) { hn::StoreU(lower, DD(), out); }
#else
HWY_INLINE VD LowerAsDouble(VF v) { return hn::PromoteTo(DD(), hn::LowerHalf(v)); }
HWY_INLINE VD UpperAsDouble(VF v) {
  const hn::Half<DF> half;
  return hn::PromoteTo(DD(), hn::UpperHalf(half, v));
}
HWY_INLINE void StoreHalves(VD lower, VD upper, double* out) {
  hn::StoreU(lower, DD(), out);
  hn::StoreU(upper, DD(), out + hn::Lanes(DD()));
}
#endif

// Adds exp(v) to two vectors of sums. Most vectors of a truncated row have nothing to add.
HWY_INLINE void AddExp(VF v, VD& lower, VD& upper) {
  const DF d;
  if (hn::AllFalse(d, hn::Gt(v, hn::Set(d, kExpUnderflow)))) return;
  const VF e = hn::Exp(d, v);
  lower = hn::Add(lower, LowerAsDouble(e));
  upper = hn::Add(upper, UpperAsDouble(e));
}

HWY_INLINE double Total(VD lower, VD upper) {
  return hn::GetLane(hn::SumOfLanes(DD(), hn::Add(lower, upper)));
}

// Returns the lanes that a cut keeps of the vector at index i.
HWY_INLINE hn::Mask<DF> Kept(VF v, size_t i, Cut cut) {
  const DF d;
  const VF value = hn::Set(d, cut.value);
  const auto end_of_ties = static_cast<size_t>(cut.last_tie) + 1;
  const auto tie = hn::FirstN(d, end_of_ties > i ? end_of_ties - i : 0);
  return hn::Or(hn::Gt(v, value), hn::And(hn::Eq(v, value), tie));
}

// Returns the bin of each lane. A lane at or below `floor` has no bin and gets num_bins.
HWY_INLINE hn::Vec<DI> BinOf(VF v, float floor, size_t num_bins) {
  const DF d;
  const DI di;
  const float scale = static_cast<float>(num_bins) / -floor;
  const auto last = hn::Set(di, static_cast<int32_t>(num_bins) - 1);
  const auto inside = hn::RebindMask(di, hn::Gt(v, hn::Set(d, floor)));
  const auto bin = hn::Min(hn::ConvertTo(di, hn::Mul(v, hn::Set(d, -scale))), last);
  return hn::IfThenElse(inside, bin, hn::Set(di, static_cast<int32_t>(num_bins)));
}

bool IsFiniteOf(const float* x, size_t n) {
  const DF d;
  const DI di;
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(di);  // bits of the largest magnitude; NaN and infinity are at the top
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), magnitude));
  }
  int32_t bits = hn::GetLane(hn::MaxOfLanes(di, largest));
  for (; i < n; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return bits < 0x7F800000;
}

bool AllAtMostOf(const float* x, size_t n, float limit) {
  const DF d;
  const VF most = hn::Set(d, limit);
  bool all = true;
  Visit(x, n, [&](VF v, size_t) HWY_ATTR { all = all && hn::AllTrue(d, hn::Le(v, most)); });
  return all;
}

float MaxOf(const float* x, size_t n) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF m0 = hn::Set(d, kMinusInfinity);
  VF m1 = m0;
  VF m2 = m0;
  VF m3 = m0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(d, x + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(d, x + i + 3 * lanes));
  }
  Visit(x + i, n - i, [&](VF v, size_t) HWY_ATTR { m0 = hn::Max(m0, v); });
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

size_t FindOf(const float* x, size_t n, float value) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF wanted = hn::Set(d, value);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), wanted));
    if (lane >= 0) return i + static_cast<size_t>(lane);
  }
  while (i < n && x[i] != value) ++i;
  return i;
}

void BucketMaximaOf(const float* x, size_t n, float* maxima, size_t num_buckets) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  std::fill(maxima, maxima + num_buckets, kMinusInfinity);
  size_t begin = 0;
  for (; begin + num_buckets <= n; begin += num_buckets) {
    for (size_t j = 0; j < num_buckets; j += lanes) {
      hn::StoreU(hn::Max(hn::LoadU(d, maxima + j), hn::LoadU(d, x + begin + j)), d, maxima + j);
    }
  }
  for (; begin < n; ++begin) {
    float& maximum = maxima[begin % num_buckets];
    maximum = std::max(maximum, x[begin]);
  }
}

double SumExpOf(const float* x, size_t n, float offset) {
  const VF subtrahend = hn::Set(DF(), offset);
  VD lower = hn::Zero(DD());
  VD upper = hn::Zero(DD());
  Visit(x, n, [&](VF v, size_t) HWY_ATTR { AddExp(hn::Sub(v, subtrahend), lower, upper); });
  return Total(lower, upper);
}

double ScaleOf(const float* x, size_t n, float max, float temperature, Cut cut, float* scaled) {
  const DF d;
  const VF largest = hn::Set(d, max);
  const VF divisor =
      hn::Set(d, temperature);  // a reciprocal could overflow, and 0 · infinity is NaN
  const VF removed = hn::Set(d, kMinusInfinity);
  VD lower = hn::Zero(DD());
  VD upper = hn::Zero(DD());
  Map(x, n, scaled, [&](VF v, size_t i) HWY_ATTR {
    const VF s = hn::IfThenElse(Kept(v, i, cut), hn::Div(hn::Sub(v, largest), divisor), removed);
    AddExp(s, lower, upper);
    return s;
  });
  return Total(lower, upper);
}

double TruncateOf(float* x, size_t n, Cut cut, float floor) {
  const DF d;
  const VF least = hn::Set(d, floor);
  const VF removed = hn::Set(d, kMinusInfinity);
  VD lower = hn::Zero(DD());
  VD upper = hn::Zero(DD());
  Map(x, n, x, [&](VF v, size_t i) HWY_ATTR {
    const VF s = hn::IfThenElse(hn::And(Kept(v, i, cut), hn::Ge(v, least)), v, removed);
    AddExp(s, lower, upper);
    return s;
  });
  return Total(lower, upper);
}

void SubtractOf(float* x, size_t n, float value) {
  const VF subtrahend = hn::Set(DF(), value);
  Map(x, n, x, [&](VF v, size_t) HWY_ATTR { return hn::Sub(v, subtrahend); });
}

size_t CollectAboveOf(const float* x, size_t begin, size_t n, float threshold, uint64_t* keys,
                      size_t capacity, size_t* count) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF limit = hn::Set(d, threshold);
  size_t found = *count;
  const auto collect = [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      keys[found] = SortKey(x[i], static_cast<uint32_t>(i));
      found += x[i] > threshold ? 1 : 0;
    }
  };
  size_t i = begin;
  while (i + 4 * lanes <= n && found + 4 * lanes <= capacity) {
    const VF v0 = hn::LoadU(d, x + i);
    const VF v1 = hn::LoadU(d, x + i + lanes);
    const VF v2 = hn::LoadU(d, x + i + 2 * lanes);
    const VF v3 = hn::LoadU(d, x + i + 3 * lanes);
    if (!hn::AllFalse(d, hn::Gt(hn::Max(hn::Max(v0, v1), hn::Max(v2, v3)), limit))) {
      if (!hn::AllFalse(d, hn::Gt(v0, limit))) collect(i, i + lanes);
      if (!hn::AllFalse(d, hn::Gt(v1, limit))) collect(i + lanes, i + 2 * lanes);
      if (!hn::AllFalse(d, hn::Gt(v2, limit))) collect(i + 2 * lanes, i + 3 * lanes);
      if (!hn::AllFalse(d, hn::Gt(v3, limit))) collect(i + 3 * lanes, i + 4 * lanes);
    }
    i += 4 * lanes;
  }
  if (i + 4 * lanes > n && found + 4 * lanes <= capacity) {
    collect(i, n);
    i = n;
  }
  *count = found;
  return i;
}

void MassHistogramOf(const float* x, size_t n, float floor, double* mass, size_t num_bins) {
  const DF d;
  const DI di;
  HWY_ALIGN float weight[hn::MaxLanes(d)];
  HWY_ALIGN int32_t bin[hn::MaxLanes(d)];
  Visit(x, n, [&](VF v, size_t) HWY_ATTR {
    if (hn::AllFalse(d, hn::Gt(v, hn::Set(d, floor)))) return;
    hn::Store(hn::Exp(d, v), d, weight);
    hn::Store(BinOf(v, floor, num_bins), di, bin);
    for (size_t lane = 0; lane < hn::Lanes(d); ++lane) {
      if (bin[lane] < static_cast<int32_t>(num_bins))
        mass[bin[lane]] += static_cast<double>(weight[lane]);
    }
  });
}

size_t CollectBinOf(const float* x, size_t n, float floor, size_t num_bins, size_t wanted,
                    uint64_t* keys) {
  const DF d;
  const DI di;
  HWY_ALIGN float value[hn::MaxLanes(d)];
  HWY_ALIGN int32_t bin[hn::MaxLanes(d)];
  const auto wanted_bin = hn::Set(di, static_cast<int32_t>(wanted));
  size_t found = 0;
  Visit(x, n, [&](VF v, size_t i) HWY_ATTR {
    const auto bins = BinOf(v, floor, num_bins);
    if (hn::AllFalse(di, hn::Eq(bins, wanted_bin))) return;
    hn::Store(v, d, value);
    hn::Store(bins, di, bin);
    for (size_t lane = 0; lane < hn::Lanes(d); ++lane) {
      keys[found] = SortKey(value[lane], static_cast<uint32_t>(i + lane));
      found += bin[lane] == static_cast<int32_t>(wanted) ? 1 : 0;
    }
  });
  return found;
}

void ExpOf(const float* x, size_t n, float* out) {
  Map(x, n, out, [](VF v, size_t) HWY_ATTR { return hn::Exp(DF(), v); });
}

double WeightsOf(const float* log_probs, size_t n, double* weights) {
  const DF d;
  const DD dd;
  VD lower = hn::Zero(dd);
  VD upper = hn::Zero(dd);
  HWY_ALIGN double tail[hn::MaxLanes(d)];
  Visit(log_probs, n, [&](VF v, size_t i) HWY_ATTR {
    VD w0 = hn::Zero(dd);
    VD w1 = hn::Zero(dd);
    if (!hn::AllFalse(d, hn::Gt(v, hn::Set(d, kExpUnderflow)))) {
      const VF e = hn::Exp(d, v);
      w0 = LowerAsDouble(e);
      w1 = UpperAsDouble(e);
      lower = hn::Add(lower, w0);
      upper = hn::Add(upper, w1);
    }
    const bool whole = i + hn::Lanes(d) <= n;
    StoreHalves(w0, w1, whole ? weights + i : tail);
    if (!whole) std::copy(tail, tail + (n - i), weights + i);
  });
  return Total(lower, upper);
}

double ResidualWeightsOf(const float* log_p, const float* log_q, size_t n, double* weights) {
  const DF d;
  const DD dd;
  VD lower = hn::Zero(dd);
  VD upper = hn::Zero(dd);
  HWY_ALIGN float q_tail[hn::MaxLanes(d)];
  HWY_ALIGN double tail[hn::MaxLanes(d)];
  Visit(log_p, n, [&](VF p, size_t i) HWY_ATTR {
    const bool whole = i + hn::Lanes(d) <= n;
    if (!whole) {
      hn::Store(hn::Set(d, kMinusInfinity), d, q_tail);
      std::copy(log_q + i, log_q + n, q_tail);
    }
    const VF q = whole ? hn::LoadU(d, log_q + i) : hn::Load(d, q_tail);
    VD r0 = hn::Zero(dd);
    VD r1 = hn::Zero(dd);
    if (!hn::AllFalse(d, hn::Gt(p, q))) {
      r0 = hn::Max(r0, hn::Sub(hn::Exp(dd, LowerAsDouble(p)), hn::Exp(dd, LowerAsDouble(q))));
      r1 = hn::Max(r1, hn::Sub(hn::Exp(dd, UpperAsDouble(p)), hn::Exp(dd, UpperAsDouble(q))));
      lower = hn::Add(lower, r0);
      upper = hn::Add(upper, r1);
    }
    StoreHalves(r0, r1, whole ? weights + i : tail);
    if (!whole) std::copy(tail, tail + (n - i), weights + i);
  });
  return Total(lower, upper);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::row
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::row {

HWY_EXPORT(IsFiniteOf);
HWY_EXPORT(AllAtMostOf);
HWY_EXPORT(MaxOf);
HWY_EXPORT(FindOf);
HWY_EXPORT(BucketMaximaOf);
HWY_EXPORT(SumExpOf);
HWY_EXPORT(ScaleOf);
HWY_EXPORT(TruncateOf);
HWY_EXPORT(SubtractOf);
HWY_EXPORT(CollectAboveOf);
HWY_EXPORT(MassHistogramOf);
HWY_EXPORT(CollectBinOf);
HWY_EXPORT(ExpOf);
HWY_EXPORT(WeightsOf);
HWY_EXPORT(ResidualWeightsOf);

bool IsFinite(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(IsFiniteOf)(x.data(), x.size());
}

bool AllAtMost(std::span<const float> x, float limit) {
  return HWY_DYNAMIC_DISPATCH(AllAtMostOf)(x.data(), x.size(), limit);
}

float Max(std::span<const float> x) { return HWY_DYNAMIC_DISPATCH(MaxOf)(x.data(), x.size()); }

size_t Find(std::span<const float> x, float value) {
  return HWY_DYNAMIC_DISPATCH(FindOf)(x.data(), x.size(), value);
}

void BucketMaxima(std::span<const float> x, std::span<float> maxima) {
  HWY_DYNAMIC_DISPATCH(BucketMaximaOf)(x.data(), x.size(), maxima.data(), maxima.size());
}

double SumExp(std::span<const float> x, float offset) {
  return HWY_DYNAMIC_DISPATCH(SumExpOf)(x.data(), x.size(), offset);
}

double Scale(std::span<const float> x, float max, float temperature, Cut cut, float* scaled) {
  return HWY_DYNAMIC_DISPATCH(ScaleOf)(x.data(), x.size(), max, temperature, cut, scaled);
}

double Truncate(std::span<float> x, Cut cut, float floor) {
  return HWY_DYNAMIC_DISPATCH(TruncateOf)(x.data(), x.size(), cut, floor);
}

void Subtract(std::span<float> x, float value) {
  HWY_DYNAMIC_DISPATCH(SubtractOf)(x.data(), x.size(), value);
}

size_t CollectAbove(std::span<const float> x, size_t begin, float threshold,
                    std::span<uint64_t> keys, size_t* count) {
  return HWY_DYNAMIC_DISPATCH(CollectAboveOf)(x.data(), begin, x.size(), threshold, keys.data(),
                                              keys.size(), count);
}

void MassHistogram(std::span<const float> x, float floor, std::span<double> mass) {
  HWY_DYNAMIC_DISPATCH(MassHistogramOf)(x.data(), x.size(), floor, mass.data(), mass.size());
}

size_t CollectBin(std::span<const float> x, float floor, size_t num_bins, size_t bin,
                  std::span<uint64_t> keys) {
  return HWY_DYNAMIC_DISPATCH(CollectBinOf)(x.data(), x.size(), floor, num_bins, bin, keys.data());
}

void Exp(std::span<const float> x, float* out) {
  HWY_DYNAMIC_DISPATCH(ExpOf)(x.data(), x.size(), out);
}

double Weights(std::span<const float> log_probs, double* weights) {
  return HWY_DYNAMIC_DISPATCH(WeightsOf)(log_probs.data(), log_probs.size(), weights);
}

double ResidualWeights(std::span<const float> target_log_probs,
                       std::span<const float> draft_log_probs, double* weights) {
  return HWY_DYNAMIC_DISPATCH(ResidualWeightsOf)(target_log_probs.data(), draft_log_probs.data(),
                                                 target_log_probs.size(), weights);
}

}  // namespace tandem::row
#endif  // HWY_ONCE
