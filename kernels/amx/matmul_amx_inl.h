// The algorithm of MatMulAmx. Tests compile it with tiles in software, so that it also runs on a
// CPU without AMX. It needs AVX-512, and nothing but matmul_amx.cc and tests may include it.
//
// Weights are the first operand of the units. They are read in place, as 16 rows by 32 k. The rows
// of x are the columns of the second operand. The three parts of a row are three columns, so one
// step of the units multiplies 16 weight rows with 5 rows of x, and 16 rows of x take three steps.
//
//   few rows  up to 16 rows of x are one row tile. Weights go from memory directly to the units.
//   blocked   A panel of weights is copied into the L2 cache and meets all row tiles there.
//
// First, x is packed as the units read it:
//   [row tile][step of 32 k][column tile][16 pairs of k][16 columns][2]   bf16
// Column c of a row tile with R rows is row c % R, part c / R. Columns beyond 3R are zero.

#ifndef TANDEM_KERNELS_AMX_MATMUL_AMX_INL_H_
#define TANDEM_KERNELS_AMX_MATMUL_AMX_INL_H_

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "hwy/base.h"
#include "kernels/amx/tiles.h"
#include "kernels/matmul.h"
#include "kernels/support/product_jobs.h"
#include "kernels/support/scratch_buffer.h"
#include "kernels/thread_pool.h"

namespace tandem::amx {

inline constexpr size_t kParts = 3;
// Largest number of rows of x in a row tile. They have kParts * kRowTile columns.
inline constexpr size_t kRowTile = 16;
inline constexpr size_t kMaxColumnTiles = kParts;
// Weight rows, as strips of 16, and k that are in the L2 cache together: 1 MiB.
inline constexpr size_t kPanelStrips = 16;
inline constexpr size_t kPanelSteps = 64;
// Steps of x that a task packs, and the number of tasks from which helpers are woken.
inline constexpr size_t kPackSteps = 16;
inline constexpr size_t kMinPackTasks = 8;

inline size_t Steps(const ProductJob& job) { return CeilDiv(job.args->in_features, kTileDepth); }
inline size_t RowTiles(const ProductJob& job) { return CeilDiv(job.rows, kRowTile); }
// The larger row tiles decide for all row tiles of the block.
inline size_t ColumnTiles(const ProductJob& job) {
  return CeilDiv(kParts * CeilDiv(job.rows, RowTiles(job)), kTileRows);
}
inline size_t RowTileBytes(const ProductJob& job) {
  return Steps(job) * ColumnTiles(job) * kTileBytes;
}
// Rows of row tile `index`, within the block.
inline Part RowTileOf(const ProductJob& job, size_t index) {
  return PartOf(job.rows, RowTiles(job), index);
}

// A caller's packed x, and every thread's panel and sums.
struct Scratch {
  ScratchBuffer<uint8_t> packed_x;
  ScratchBuffer<uint8_t> panel;
  ScratchBuffer<uint8_t> sums;
  std::vector<ProductJob> jobs;
};

inline Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// Weights of consecutive strips, as the units read them. Distances are in bytes.
struct Strips {
  const uint8_t* first;
  size_t row_stride;
  size_t step_stride;
  size_t strip_stride;
};

// What the units do at once: S strips with the T column tiles of a row tile.
struct Block {
  Strips weights;
  const uint8_t* x;  // [steps][T] tiles
  size_t steps;
  float* sums;  // [S][16][T * 16]
  bool first;   // whether the sums begin at zero
};

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl")

// Calls f<0>(), f<1>(), … f<N - 1>().
template <int N, class F>
HWY_INLINE void Repeat(const F& f) {
  if constexpr (N > 0) {
    Repeat<N - 1>(f);
    f(std::integral_constant<int, N - 1>());
  }
}

// Multiplies step `step` of S strips with T column tiles. Registers 0 … S * T - 1 are the sums.
template <int S, int T, class Units>
HWY_INLINE void MultiplyStep(Units& units, const Block& block, size_t step) {
  const uint8_t* w = block.weights.first + step * block.weights.step_stride;
  const uint8_t* x = block.x + step * T * kTileBytes;
  const size_t row_stride = block.weights.row_stride;
  const size_t strip_stride = block.weights.strip_stride;
  constexpr int kFree = S * T;
  if constexpr (kFree + S + 1 <= kTileRegisters) {  // all strips stay in registers
    constexpr int kX = kFree + S;
    Repeat<S>([&](auto s) { units.template Load<kFree + s>(w + s * strip_stride, row_stride); });
    Repeat<T>([&](auto t) {
      units.template Load<kX>(x + t * kTileBytes, kTileRowBytes);
      Repeat<S>([&](auto s) { units.template Dot<s * T + t, kFree + s, kX>(); });
    });
  } else {
    Repeat<S>([&](auto s) {
      units.template Load<kFree>(w + s * strip_stride, row_stride);
      Repeat<T>([&](auto t) {
        units.template Load<kFree + 1>(x + t * kTileBytes, kTileRowBytes);
        units.template Dot<s * T + t, kFree, kFree + 1>();
      });
    });
  }
}

template <int S, int T, class Units>
HWY_NOINLINE void Multiply(Units& units, const Block& block) {
  constexpr size_t kSumsStride = T * kTileRowBytes;
  static_assert(S * T + 2 <= kTileRegisters);
  const auto sums_of = [&](int s, int t) {
    return block.sums + (static_cast<size_t>(s) * kTileRows * T + static_cast<size_t>(t)) * 16;
  };
  Repeat<S>([&](auto s) {
    Repeat<T>([&](auto t) {
      if (block.first) {
        units.template Zero<s * T + t>();
      } else {
        units.template Load<s * T + t>(sums_of(s, t), kSumsStride);
      }
    });
  });
  for (size_t step = 0; step < block.steps; ++step) MultiplyStep<S, T>(units, block, step);
  Repeat<S>([&](auto s) {
    Repeat<T>([&](auto t) { units.template Store<s * T + t>(sums_of(s, t), kSumsStride); });
  });
}

// Calls Multiply for a number of column tiles that is known only now.
template <int S, class Units>
void MultiplyStrips(Units& units, size_t column_tiles, const Block& block) {
  if (column_tiles == 1) return Multiply<S, 1>(units, block);
  if (column_tiles == 2) return Multiply<S, 2>(units, block);
  Multiply<S, 3>(units, block);
}

// Transposes 16 vectors of 16 lanes.
HWY_INLINE void Transpose(__m512i (&v)[16]) {
  __m512i a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    a[i] = _mm512_unpacklo_epi64(low01, low23);
    a[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    a[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    a[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    const __m512i even01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xDD);
    const __m512i even23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xDD);
    v[i] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    v[i + 4] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(even01, even23, 0xDD);
    v[i + 12] = _mm512_shuffle_i32x4(odd01, odd23, 0xDD);
  }
}

// Cuts 32 numbers of a row into parts. Lane i of a part has its BF16 numbers 2i and 2i + 1.
HWY_INLINE void Split(const float* from, size_t count, __m512i (&parts)[kParts]) {
  const auto in_first = static_cast<__mmask16>((1U << std::min<size_t>(count, 16)) - 1);
  const auto in_second = static_cast<__mmask16>((1U << (std::max<size_t>(count, 16) - 16)) - 1);
  const __m512 first = _mm512_maskz_loadu_ps(in_first, from);
  const __m512 second = _mm512_maskz_loadu_ps(in_second, from + 16);
  const __m512i lanes = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  __m512 even = _mm512_permutex2var_ps(first, lanes, second);
  __m512 odd = _mm512_permutex2var_ps(first, _mm512_add_epi32(lanes, one), second);
#pragma GCC unroll 4
  for (size_t p = 0; p < kParts; ++p) {
    const __m512i cut_even = _mm512_and_si512(_mm512_castps_si512(even), high_half);
    const __m512i cut_odd = _mm512_and_si512(_mm512_castps_si512(odd), high_half);
    parts[p] = _mm512_or_si512(_mm512_srli_epi32(cut_even, 16), cut_odd);
    even = _mm512_sub_ps(even, _mm512_castsi512_ps(cut_even));
    odd = _mm512_sub_ps(odd, _mm512_castsi512_ps(cut_odd));
  }
}

// Packs steps [begin, end) of a row tile.
inline void PackSteps(const ProductJob& job, size_t tile, size_t begin, size_t end,
                      uint8_t* packed_x) {
  const MatMulArgs& args = *job.args;
  const Part rows = RowTileOf(job, tile);
  const size_t column_tiles = ColumnTiles(job);
  const float* from = args.x + (job.first_row + rows.begin) * args.x_stride;
  uint8_t* to = packed_x + tile * RowTileBytes(job) + begin * column_tiles * kTileBytes;
  for (size_t step = begin; step < end; ++step) {
    alignas(64) __m512i columns[kMaxColumnTiles * 16];
    for (size_t c = kParts * rows.size; c < column_tiles * 16; ++c) {
      columns[c] = _mm512_setzero_si512();
    }
    const size_t k = step * kTileDepth;
    for (size_t m = 0; m < rows.size; ++m) {
      __m512i parts[kParts];
      Split(from + m * args.x_stride + k, std::min(kTileDepth, args.in_features - k), parts);
      for (size_t p = 0; p < kParts; ++p) columns[p * rows.size + m] = parts[p];
    }
    for (size_t t = 0; t < column_tiles; ++t, to += kTileBytes) {
      __m512i v[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) v[i] = columns[t * 16 + i];
      Transpose(v);
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) _mm512_store_si512(to + i * kTileRowBytes, v[i]);
    }
  }
}

// Copies steps [begin, end) of a strip to [step][16 rows][32] bf16. Missing weights are zero.
inline void CopyStrip(const MatMulArgs& args, size_t strip, size_t begin, size_t end, uint8_t* to) {
  const size_t row = strip * kTileRows;
  const size_t rows = std::min(kTileRows, args.out_features - row);
  const auto* from = static_cast<const uint8_t*>(args.w) + row * args.in_features * 2;
  for (size_t step = begin; step < end; ++step, to += kTileBytes) {
    const size_t k = step * kTileDepth;
    const size_t count = std::min(kTileDepth, args.in_features - k);
    const auto present = static_cast<__mmask32>((uint64_t{1} << count) - 1);
#pragma GCC unroll 16
    for (size_t n = 0; n < kTileRows; ++n) {
      const __m512i weights =
          n < rows ? _mm512_maskz_loadu_epi16(present, from + (n * args.in_features + k) * 2)
                   : _mm512_setzero_si512();
      _mm512_store_si512(to + n * kTileRowBytes, weights);
    }
  }
}

// Writes one vector of out: weight rows [col, col + 16) that exist, for one row of x.
HWY_INLINE void StoreOut(const MatMulArgs& args, size_t row, size_t col, __m512 value) {
  const size_t cols = std::min(kTileRows, args.out_features - col);
  const auto present = static_cast<__mmask16>((1U << cols) - 1);
  float* out = args.out + row * args.out_stride + col;
  if (args.bias != nullptr) {
    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(present, args.bias + col));
  }
  if (args.add_to_out) value = _mm512_add_ps(_mm512_maskz_loadu_ps(present, out), value);
  _mm512_mask_storeu_ps(out, present, value);
}

// Adds up the parts of one strip and writes them. sums: [16][column_tiles * 16], and 16 floats more
// that may be read.
inline void StoreStrip(const ProductJob& job, const Part& rows, size_t strip, const float* sums) {
  const size_t stride = ColumnTiles(job) * 16;
  const size_t row = job.first_row + rows.begin;
  const size_t col = strip * kTileRows;
  constexpr size_t kFewRowsToGather = 3;
  if (rows.size <= kFewRowsToGather) {
    const __m512i lanes =
        _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                           _mm512_set1_epi32(static_cast<int>(stride)));
    for (size_t m = 0; m < rows.size; ++m) {
      const auto part = [&](size_t p) {
        return _mm512_i32gather_ps(lanes, sums + p * rows.size + m, sizeof(float));
      };
      StoreOut(*job.args, row + m, col, _mm512_add_ps(part(0), _mm512_add_ps(part(1), part(2))));
    }
    return;
  }
  __m512i v[16];
#pragma GCC unroll 16
  for (size_t n = 0; n < 16; ++n) {
    const auto part = [&](size_t p) { return _mm512_loadu_ps(sums + n * stride + p * rows.size); };
    v[n] = _mm512_castps_si512(_mm512_add_ps(part(0), _mm512_add_ps(part(1), part(2))));
  }
  Transpose(v);
  alignas(64) __m512i by_row[16];
  for (size_t m = 0; m < 16; ++m) by_row[m] = v[m];
  for (size_t m = 0; m < rows.size; ++m) {
    StoreOut(*job.args, row + m, col, _mm512_castsi512_ps(by_row[m]));
  }
}

HWY_POP_ATTRIBUTES

// Bytes of the sums of one strip, with the floats that StoreStrip may read beyond them.
inline size_t SumsBytes(size_t column_tiles) { return column_tiles * kTileBytes; }
inline constexpr size_t kSumsPadding = 64;

// --- Few rows: one row tile

// Strips [begin, end) of 16 weight rows that all exist. The units read the weights in place. There
// is no prefetch, because each one that was tried made decoding slower on the Xeon at hand.
template <class Units>
void FewRows(Units& units, const ProductJob& job, const uint8_t* x, size_t begin, size_t end) {
  const MatMulArgs& args = *job.args;
  const size_t column_tiles = ColumnTiles(job);
  const size_t full_steps = args.in_features / kTileDepth;
  const size_t row_bytes = args.in_features * 2;
  Scratch& scratch = ThreadScratch();
  auto* sums =
      reinterpret_cast<float*>(scratch.sums.Reserve(SumsBytes(column_tiles) + kSumsPadding));
  uint8_t* partial = scratch.panel.Reserve(kTileBytes);
  for (size_t strip = begin; strip < end; ++strip) {
    const uint8_t* w = static_cast<const uint8_t*>(args.w) + strip * kTileRows * row_bytes;
    MultiplyStrips<1>(units, column_tiles,
                      Block{.weights = {w, row_bytes, kTileRowBytes, 0},
                            .x = x,
                            .steps = full_steps,
                            .sums = sums,
                            .first = true});
    if (full_steps < Steps(job)) {
      CopyStrip(args, strip, full_steps, Steps(job), partial);
      MultiplyStrips<1>(units, column_tiles,
                        Block{.weights = {partial, kTileRowBytes, kTileBytes, 0},
                              .x = x + full_steps * column_tiles * kTileBytes,
                              .steps = 1,
                              .sums = sums,
                              .first = false});
    }
    StoreStrip(job, RowTileOf(job, 0), strip, sums);
  }
}

// --- Blocked

// Strips [begin, end) with all row tiles. A panel holds some steps of all the strips; the sums wait
// in memory between two panels.
template <class Units>
void Blocked(Units& units, const ProductJob& job, const uint8_t* packed_x, size_t begin,
             size_t end) {
  const size_t column_tiles = ColumnTiles(job);
  const size_t pieces = CeilDiv(Steps(job), kPanelSteps);
  const size_t panel_steps = CeilDiv(Steps(job), pieces);
  const size_t strips = end - begin;
  const size_t sums_bytes = SumsBytes(column_tiles);
  Scratch& scratch = ThreadScratch();
  uint8_t* panel = scratch.panel.Reserve(strips * panel_steps * kTileBytes);
  uint8_t* sums = scratch.sums.Reserve((pieces > 1 ? RowTiles(job) * strips : strips) * sums_bytes +
                                       kSumsPadding);
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t step = piece * panel_steps;
    const size_t steps = std::min(panel_steps, Steps(job) - step);
    const bool last = piece + 1 == pieces;
    for (size_t i = 0; i < strips; ++i) {
      CopyStrip(*job.args, begin + i, step, step + steps, panel + i * panel_steps * kTileBytes);
    }
    for (size_t tile = 0; tile < RowTiles(job); ++tile) {
      uint8_t* tile_sums = sums + (pieces > 1 ? tile * strips * sums_bytes : 0);
      for (size_t i = 0; i < strips; i += 2) {
        auto* at = reinterpret_cast<float*>(tile_sums + i * sums_bytes);
        const Block block{
            .weights = {panel + i * panel_steps * kTileBytes, kTileRowBytes, kTileBytes,
                        panel_steps * kTileBytes},
            .x = packed_x + tile * RowTileBytes(job) + step * column_tiles * kTileBytes,
            .steps = steps,
            .sums = at,
            .first = piece == 0};
        const size_t pair = std::min<size_t>(2, strips - i);
        if (pair == 2) {
          MultiplyStrips<2>(units, column_tiles, block);
        } else {
          MultiplyStrips<1>(units, column_tiles, block);
        }
        for (size_t j = 0; last && j < pair; ++j) {
          StoreStrip(job, RowTileOf(job, tile), begin + i + j, at + j * sums_bytes / sizeof(float));
        }
      }
    }
  }
}

// --- The whole product

template <class Units>
void RunTask(const ProductJob& job, const uint8_t* packed_x, size_t begin, size_t end) {
  Units units;
  if (RowTiles(job) > 1) return Blocked(units, job, packed_x, begin, end);
  // A last strip with missing rows is copied.
  const size_t whole = std::min(end, job.args->out_features / kTileRows);
  if (begin < whole) FewRows(units, job, packed_x, begin, whole);
  if (whole < end) Blocked(units, job, packed_x, std::max(begin, whole), end);
}

// Cuts the weight rows of each job into tasks of whole strips.
inline void CutTasks(std::span<ProductJob> jobs, int num_threads) {
  const size_t task_bytes = BytesPerTask(jobs, num_threads);
  for (ProductJob& job : jobs) {
    size_t strips = CeilDiv(task_bytes, job.args->in_features * 2 * kTileRows);
    if (RowTiles(job) > 1) {
      const size_t fair = CeilDiv(job.args->out_features, WantedTasks(num_threads) / 4 * kTileRows);
      strips = std::clamp(fair, kPanelStrips / 4, kPanelStrips);
    }
    job.rows_per_task = strips * kTileRows;
  }
}

inline void PackX(const ProductJob& job, uint8_t* packed_x, ThreadPool& pool) {
  const size_t chunks = CeilDiv(Steps(job), kPackSteps);
  const auto pack = [&](int64_t task) {
    const size_t tile = static_cast<size_t>(task) / chunks;
    const size_t begin = static_cast<size_t>(task) % chunks * kPackSteps;
    PackSteps(job, tile, begin, std::min(begin + kPackSteps, Steps(job)),
              packed_x + job.packed_offset);
  };
  const auto tasks = static_cast<int64_t>(RowTiles(job) * chunks);
  if (static_cast<size_t>(tasks) * ColumnTiles(job) >= kMinPackTasks) {
    pool.ParallelFor(tasks, pack);
  } else {
    for (int64_t task = 0; task < tasks; ++task) pack(task);
  }
}

template <class Units>
void MatMul(std::span<const MatMulArgs> products, ThreadPool& pool) {
  Scratch& scratch = ThreadScratch();
  std::vector<ProductJob>& jobs = scratch.jobs;
  const auto same_packing = [](const MatMulArgs&, const MatMulArgs&) { return true; };
  const auto packed_bytes = [](const ProductJob& job) { return RowTiles(job) * RowTileBytes(job); };
  for (size_t block = 0;; ++block) {
    const size_t packed = PlanBlock(products, block, same_packing, packed_bytes, jobs);
    if (jobs.empty()) return;
    uint8_t* packed_x = scratch.packed_x.Reserve(packed);
    for (const ProductJob& job : jobs) {
      if (job.packs_x) PackX(job, packed_x, pool);
    }
    CutTasks(jobs, pool.num_threads());
    RunTasks(jobs, pool, [&](const ProductJob& job, size_t begin, size_t end) {
      RunTask<Units>(job, packed_x + job.packed_offset, begin / kTileRows, CeilDiv(end, kTileRows));
    });
  }
}

}  // namespace tandem::amx

#endif  // TANDEM_KERNELS_AMX_MATMUL_AMX_INL_H_
