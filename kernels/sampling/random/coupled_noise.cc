#include "kernels/sampling/random/coupled_noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/random/coupled_noise.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// After highway.h, once for each target.
#include "hwy/contrib/math/math-inl.h"

#ifndef TANDEM_KERNELS_SAMPLING_COUPLED_NOISE_CC_
#define TANDEM_KERNELS_SAMPLING_COUPLED_NOISE_CC_
namespace tandem {

// The part of Philox's input that is the same for the whole row.
struct CoupledStream {
  std::array<uint32_t, 3> counter;  // words 1 to 3; word 0 is token_id / 2
  std::array<uint32_t, 2> key;
};

inline CoupledStream StreamOf(const DrawKey& key) {
  return {{static_cast<uint32_t>(DrawPurpose::kCoupled), static_cast<uint32_t>(key.position),
           static_cast<uint32_t>(key.position >> 32)},
          {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
}

inline double CoupledUniform(const CoupledStream& stream, uint32_t token_id) {
  const std::array<uint32_t, 4> words = Philox4x32(
      {token_id / 2, stream.counter[0], stream.counter[1], stream.counter[2]}, stream.key);
  const size_t first = token_id % 2 * 2;
  return static_cast<double>((uint64_t{words[first]} << 32 | words[first + 1]) >> 11) * 0x1p-53;
}

// E(x) / p(x), which is infinite if p is 0.
inline double CoupledScore(const CoupledStream& stream, uint32_t token_id, float log_prob) {
  return -std::log1p(-CoupledUniform(stream, token_id)) / std::exp(static_cast<double>(log_prob));
}

}  // namespace tandem
#endif  // TANDEM_KERNELS_SAMPLING_COUPLED_NOISE_CC_

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// Highway's scalar target has no vector of two blocks' words: every token is evaluated.
int32_t CoupledArgminOf(const float* log_probs, size_t n, const CoupledStream& stream) {
  double best = std::numeric_limits<double>::infinity();
  int32_t best_id = -1;
  for (size_t i = 0; i < n; ++i) {
    const double score = CoupledScore(stream, static_cast<uint32_t>(i), log_probs[i]);
    if (score < best) {
      best = score;
      best_id = static_cast<int32_t>(i);
    }
  }
  return best_id;
}

#else

// The upper word of each token's uniform, for the two tokens of each block, in token order. Each
// 64-bit lane carries one block. MulEven reads the lower halves only, so the values in the upper
// halves do no harm.
template <class D64>
HWY_INLINE hn::Vec<D64> UpperWords(D64 d64, const CoupledStream& stream, hn::Vec<D64> blocks) {
  const hn::Repartition<uint32_t, D64> d32;
  const auto multiplier0 = hn::Set(d64, uint64_t{kPhiloxMultipliers[0]});
  const auto multiplier1 = hn::Set(d64, uint64_t{kPhiloxMultipliers[1]});
  auto c0 = blocks;
  auto c1 = hn::Set(d64, uint64_t{stream.counter[0]});
  auto c2 = hn::Set(d64, uint64_t{stream.counter[1]});
  auto c3 = hn::Set(d64, uint64_t{stream.counter[2]});
  uint32_t key0 = stream.key[0];
  uint32_t key1 = stream.key[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const auto product0 = hn::MulEven(hn::BitCast(d32, c0), hn::BitCast(d32, multiplier0));
    const auto product1 = hn::MulEven(hn::BitCast(d32, c2), hn::BitCast(d32, multiplier1));
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(d64, uint64_t{key0}));
    c1 = product1;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(d64, uint64_t{key1}));
    c3 = product0;
    key0 += kPhiloxWeyl[0];
    key1 += kPhiloxWeyl[1];
  }
  return hn::Or(hn::And(c0, hn::Set(d64, uint64_t{0xFFFFFFFF})), hn::ShiftLeft<32>(c2));
}

int32_t CoupledArgminOf(const float* HWY_RESTRICT log_probs, size_t n,
                        const CoupledStream& stream) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  const size_t lanes = hn::Lanes(d);
  const auto minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Exp is within an ulp of the truth and may flush to zero; the test must never rule out a winner.
  const auto slack = hn::Set(d, 1.00001f);
  const auto smallest = hn::Set(d, 1e-37f);
  const auto first_blocks = hn::Iota(d64, uint64_t{0});
  auto best_bound = hn::Set(d, std::numeric_limits<float>::infinity());

  double best = std::numeric_limits<double>::infinity();
  int32_t best_id = -1;
  HWY_ALIGN float tail[hn::MaxLanes(d)];
  for (size_t i = 0; i < n; i += lanes) {
    const float* row = log_probs + i;
    if (i + lanes > n) {
      hn::Store(minus_infinity, d, tail);
      std::copy(row, log_probs + n, tail);
      row = tail;
    }
    const auto log_p = hn::LoadU(d, row);
    const auto possible = hn::Gt(log_p, minus_infinity);
    if (hn::AllFalse(d, possible)) continue;
    const auto p_bound = hn::MulAdd(hn::Exp(d, log_p), slack, smallest);
    const auto blocks = hn::Add(first_blocks, hn::Set(d64, uint64_t{i / 2}));
    const auto words = hn::BitCast(d32, UpperWords(d64, stream, blocks));
    const auto u_bound =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(words))), hn::Set(d, 0x1p-24f));
    const auto may_win = hn::And(hn::Lt(u_bound, hn::Mul(best_bound, p_bound)), possible);
    if (hn::AllFalse(d, may_win)) continue;
    uint8_t bits[(hn::MaxLanes(d) + 7) / 8 + 8];
    hn::StoreMaskBits(d, may_win, bits);
    for (size_t lane = 0; lane < lanes; ++lane) {
      if ((bits[lane / 8] >> (lane % 8) & 1) == 0) continue;
      const double score = CoupledScore(stream, static_cast<uint32_t>(i + lane), row[lane]);
      if (score < best) {
        best = score;
        best_id = static_cast<int32_t>(i + lane);
      }
    }
    best_bound = hn::Set(d, best < 1e37 ? static_cast<float>(best * 1.00001)
                                        : std::numeric_limits<float>::infinity());
  }
  return best_id;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(CoupledArgminOf);

double CoupledUniform(const DrawKey& key, int32_t token_id) {
  return CoupledUniform(StreamOf(key), static_cast<uint32_t>(token_id));
}

int32_t CoupledArgmin(std::span<const float> log_probs, const DrawKey& key) {
  return HWY_DYNAMIC_DISPATCH(CoupledArgminOf)(log_probs.data(), log_probs.size(), StreamOf(key));
}

}  // namespace tandem
#endif  // HWY_ONCE
