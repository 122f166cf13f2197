#include "kernels/rms_norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Four chains hide the latency of the multiply-adds. The order depends on `size` alone.
float SumOfSquares(const float* x, size_t size) {
  const hn::ScalableTag<float> d;
  const size_t n = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * n <= size; i += 4 * n) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + n);
    const auto x2 = hn::LoadU(d, x + i + 2 * n), x3 = hn::LoadU(d, x + i + 3 * n);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  for (; i + n <= size; i += n) {
    const auto x0 = hn::LoadU(d, x + i);
    sum0 = hn::MulAdd(x0, x0, sum0);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < size; ++i) sum += x[i] * x[i];
  return sum;
}

void RmsNormHead(const RmsNormArgs& args, const float* x, float* out) {
  const hn::ScalableTag<float> d;
  const size_t n = hn::Lanes(d);
  const float mean = SumOfSquares(x, args.size) / static_cast<float>(args.size);
  const float scale = 1.0f / std::sqrt(mean + args.eps);
  const auto scales = hn::Set(d, scale);
  size_t i = 0;
  for (; i + n <= args.size; i += n) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, args.weight + i)), d, out + i);
  }
  for (; i < args.size; ++i) out[i] = x[i] * scale * args.weight[i];
}

void RmsNormRows(const RmsNormArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t h = 0; h < args.num_heads; ++h) {
      RmsNormHead(args, args.x + r * args.x_stride + h * args.size,
                  args.out + r * args.out_stride + h * args.size);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(RmsNormRows);

void RmsNorm(const RmsNormArgs& args) { HWY_DYNAMIC_DISPATCH(RmsNormRows)(args); }

void RmsNormReference(const RmsNormArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t h = 0; h < args.num_heads; ++h) {
      const float* x = args.x + r * args.x_stride + h * args.size;
      float* out = args.out + r * args.out_stride + h * args.size;
      double sum = 0;
      for (size_t i = 0; i < args.size; ++i) sum += static_cast<double>(x[i]) * x[i];
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(args.size) + args.eps);
      for (size_t i = 0; i < args.size; ++i) {
        out[i] = static_cast<float>(x[i] * scale * args.weight[i]);
      }
    }
  }
}

}  // namespace tandem
#endif  // HWY_ONCE
