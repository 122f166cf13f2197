#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#ifndef TANDEM_KERNELS_ATTENTION_TILE_
#define TANDEM_KERNELS_ATTENTION_TILE_
namespace tandem {

// Largest number of queries in a task. A query is one head of one row. The queries of a task share
// a KV head, so that a block of keys and values is read once for all of them.
inline constexpr size_t kQueryTile = 64;

// The queries [begin, begin + count) of one KV head, counted row by row.
struct AttentionTile {
  const AttentionArgs* args = nullptr;
  size_t kv_head = 0;
  size_t begin = 0;
  size_t count = 0;
};

}  // namespace tandem
#endif  // TANDEM_KERNELS_ATTENTION_TILE_

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that four vectors fit into a block of keys on every target.
using Tag = hn::CappedTag<float, 16>;
using ScalarTag = hn::CappedTag<float, 1>;

// Running softmax of one query.
struct Softmax {
  float max = 0;
  float sum = 0;
};

struct Query {
  const float* q = nullptr;
  float* out = nullptr;    // holds the running weighted sum of values until the end
  size_t row = 0;          // the query's row of the pass
  size_t num_visible = 0;  // number of keys that the query sees
};

// scores[j] = q · keys[j] for j in [0, n), and for some j after that. Each score is one chain over
// the dimensions.
HWY_NOINLINE void Scores1(const float* q, const float* keys, size_t head_size, size_t n,
                          float* scores) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t j = 0; j < n; j += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    const float* k = keys + j;
    for (size_t i = 0; i < head_size; ++i, k += kKeyBlock) {
      const auto q_i = hn::Set(d, q[i]);
      s0 = hn::MulAdd(q_i, hn::LoadU(d, k), s0);
      s1 = hn::MulAdd(q_i, hn::LoadU(d, k + lanes), s1);
      s2 = hn::MulAdd(q_i, hn::LoadU(d, k + 2 * lanes), s2);
      s3 = hn::MulAdd(q_i, hn::LoadU(d, k + 3 * lanes), s3);
    }
    hn::Store(s0, d, scores + j);
    hn::Store(s1, d, scores + j + lanes);
    hn::Store(s2, d, scores + j + 2 * lanes);
    hn::Store(s3, d, scores + j + 3 * lanes);
  }
}

// The same for four queries at once: each key vector is loaded once. scores [4, kKeyBlock]
HWY_NOINLINE void Scores4(const Query* queries, const float* keys, size_t head_size, size_t n,
                          float* scores) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const float* q0 = queries[0].q;
  const float* q1 = queries[1].q;
  const float* q2 = queries[2].q;
  const float* q3 = queries[3].q;
  for (size_t j = 0; j < n; j += 2 * lanes) {
    auto s00 = hn::Zero(d), s01 = hn::Zero(d), s10 = hn::Zero(d), s11 = hn::Zero(d);
    auto s20 = hn::Zero(d), s21 = hn::Zero(d), s30 = hn::Zero(d), s31 = hn::Zero(d);
    const float* k = keys + j;
    for (size_t i = 0; i < head_size; ++i, k += kKeyBlock) {
      const auto k0 = hn::LoadU(d, k);
      const auto k1 = hn::LoadU(d, k + lanes);
      s00 = hn::MulAdd(hn::Set(d, q0[i]), k0, s00);
      s01 = hn::MulAdd(hn::Set(d, q0[i]), k1, s01);
      s10 = hn::MulAdd(hn::Set(d, q1[i]), k0, s10);
      s11 = hn::MulAdd(hn::Set(d, q1[i]), k1, s11);
      s20 = hn::MulAdd(hn::Set(d, q2[i]), k0, s20);
      s21 = hn::MulAdd(hn::Set(d, q2[i]), k1, s21);
      s30 = hn::MulAdd(hn::Set(d, q3[i]), k0, s30);
      s31 = hn::MulAdd(hn::Set(d, q3[i]), k1, s31);
    }
    hn::Store(s00, d, scores + j);
    hn::Store(s01, d, scores + j + lanes);
    hn::Store(s10, d, scores + kKeyBlock + j);
    hn::Store(s11, d, scores + kKeyBlock + j + lanes);
    hn::Store(s20, d, scores + 2 * kKeyBlock + j);
    hn::Store(s21, d, scores + 2 * kKeyBlock + j + lanes);
    hn::Store(s30, d, scores + 3 * kKeyBlock + j);
    hn::Store(s31, d, scores + 3 * kKeyBlock + j + lanes);
  }
}

// Turns the scores [hidden, n) into weights exp(score * scale - max) and the other scores into
// zeros. Scales the earlier sums by the change of the maximum.
void UpdateSoftmax(float* scores, size_t hidden, size_t n, float scale, Softmax& softmax,
                   float* out, size_t head_size) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto scales = hn::Set(d, scale);
  const auto first = hn::Set(d, static_cast<float>(hidden));
  const auto count = hn::Set(d, static_cast<float>(n));
  auto max = lowest;
  for (size_t j = 0; j < n; j += lanes) {
    const auto key = hn::Iota(d, static_cast<float>(j));
    const auto is_visible = hn::And(hn::Ge(key, first), hn::Lt(key, count));
    const auto s = hn::IfThenElse(is_visible, hn::Mul(hn::Load(d, scores + j), scales), lowest);
    hn::Store(s, d, scores + j);
    max = hn::Max(max, s);
  }
  const float new_max = std::max(softmax.max, hn::GetLane(hn::MaxOfLanes(d, max)));
  const auto new_maxes = hn::Set(d, new_max);
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < n; j += lanes) {
    const auto p = hn::Exp(d, hn::Sub(hn::Load(d, scores + j), new_maxes));
    hn::Store(p, d, scores + j);
    sum = hn::Add(sum, p);
  }
  const auto corrections = hn::Exp(d, hn::Sub(hn::Set(d, softmax.max), new_maxes));
  const float correction = hn::GetLane(corrections);
  softmax.sum = softmax.sum * correction + hn::GetLane(hn::SumOfLanes(d, sum));
  if (softmax.max != new_max) {
    softmax.max = new_max;
    size_t i = 0;
    for (; i + lanes <= head_size; i += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, out + i), corrections), d, out + i);
    }
    for (; i < head_size; ++i) out[i] *= correction;
  }
}

// out[i] += Σ_j weights[j] * values[j, i] for j in [begin, end), j ascending, and i in [first,
// head_size).
HWY_NOINLINE void AddValues1(const float* weights, const float* values, size_t head_size,
                             size_t first, size_t begin, size_t end, float* out) {
  const Tag d;
  const ScalarTag d1;
  const size_t lanes = hn::Lanes(d);
  size_t i = first;
  for (; i + 4 * lanes <= head_size; i += 4 * lanes) {
    auto o0 = hn::LoadU(d, out + i), o1 = hn::LoadU(d, out + i + lanes);
    auto o2 = hn::LoadU(d, out + i + 2 * lanes), o3 = hn::LoadU(d, out + i + 3 * lanes);
    for (size_t j = begin; j < end; ++j) {
      const auto w = hn::Set(d, weights[j]);
      const float* v = values + j * head_size + i;
      o0 = hn::MulAdd(w, hn::LoadU(d, v), o0);
      o1 = hn::MulAdd(w, hn::LoadU(d, v + lanes), o1);
      o2 = hn::MulAdd(w, hn::LoadU(d, v + 2 * lanes), o2);
      o3 = hn::MulAdd(w, hn::LoadU(d, v + 3 * lanes), o3);
    }
    hn::StoreU(o0, d, out + i);
    hn::StoreU(o1, d, out + i + lanes);
    hn::StoreU(o2, d, out + i + 2 * lanes);
    hn::StoreU(o3, d, out + i + 3 * lanes);
  }
  for (; i + lanes <= head_size; i += lanes) {
    auto o = hn::LoadU(d, out + i);
    for (size_t j = begin; j < end; ++j) {
      o = hn::MulAdd(hn::Set(d, weights[j]), hn::LoadU(d, values + j * head_size + i), o);
    }
    hn::StoreU(o, d, out + i);
  }
  for (; i < head_size; ++i) {
    auto o = hn::LoadU(d1, out + i);
    for (size_t j = begin; j < end; ++j) {
      o = hn::MulAdd(hn::Set(d1, weights[j]), hn::LoadU(d1, values + j * head_size + i), o);
    }
    hn::StoreU(o, d1, out + i);
  }
}

// The same for four queries; query t adds keys [0, ends[t]). weights [4, kKeyBlock]
HWY_NOINLINE void AddValues4(const Query* queries, const float* weights, const float* values,
                             size_t head_size, const size_t* ends) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const size_t common = std::min(std::min(ends[0], ends[1]), std::min(ends[2], ends[3]));
  const float* w0 = weights;
  const float* w1 = weights + kKeyBlock;
  const float* w2 = weights + 2 * kKeyBlock;
  const float* w3 = weights + 3 * kKeyBlock;
  size_t i = 0;
  for (; i + 2 * lanes <= head_size; i += 2 * lanes) {
    float* out0 = queries[0].out + i;
    float* out1 = queries[1].out + i;
    float* out2 = queries[2].out + i;
    float* out3 = queries[3].out + i;
    auto o00 = hn::LoadU(d, out0), o01 = hn::LoadU(d, out0 + lanes);
    auto o10 = hn::LoadU(d, out1), o11 = hn::LoadU(d, out1 + lanes);
    auto o20 = hn::LoadU(d, out2), o21 = hn::LoadU(d, out2 + lanes);
    auto o30 = hn::LoadU(d, out3), o31 = hn::LoadU(d, out3 + lanes);
    const float* v = values + i;
    for (size_t j = 0; j < common; ++j, v += head_size) {
      const auto v0 = hn::LoadU(d, v);
      const auto v1 = hn::LoadU(d, v + lanes);
      o00 = hn::MulAdd(hn::Set(d, w0[j]), v0, o00);
      o01 = hn::MulAdd(hn::Set(d, w0[j]), v1, o01);
      o10 = hn::MulAdd(hn::Set(d, w1[j]), v0, o10);
      o11 = hn::MulAdd(hn::Set(d, w1[j]), v1, o11);
      o20 = hn::MulAdd(hn::Set(d, w2[j]), v0, o20);
      o21 = hn::MulAdd(hn::Set(d, w2[j]), v1, o21);
      o30 = hn::MulAdd(hn::Set(d, w3[j]), v0, o30);
      o31 = hn::MulAdd(hn::Set(d, w3[j]), v1, o31);
    }
    hn::StoreU(o00, d, out0);
    hn::StoreU(o01, d, out0 + lanes);
    hn::StoreU(o10, d, out1);
    hn::StoreU(o11, d, out1 + lanes);
    hn::StoreU(o20, d, out2);
    hn::StoreU(o21, d, out2 + lanes);
    hn::StoreU(o30, d, out3);
    hn::StoreU(o31, d, out3 + lanes);
  }
  for (size_t t = 0; t < 4; ++t) {
    const float* w = weights + t * kKeyBlock;
    if (i < head_size) AddValues1(w, values, head_size, i, 0, common, queries[t].out);
    if (common < ends[t]) {
      AddValues1(w, values, head_size, 0, common, ends[t], queries[t].out);
    }
  }
}

void Normalize(const Softmax& softmax, size_t head_size, float* out) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const auto sums = hn::Set(d, softmax.sum);
  size_t i = 0;
  for (; i + lanes <= head_size; i += lanes) {
    hn::StoreU(hn::Div(hn::LoadU(d, out + i), sums), d, out + i);
  }
  for (; i < head_size; ++i) out[i] /= softmax.sum;
}

// The keys of a block that a query sees.
HWY_INLINE size_t VisibleInBlock(size_t num_visible, size_t block) {
  const size_t begin = block * kKeyBlock;
  return num_visible <= begin ? 0 : std::min(num_visible - begin, kKeyBlock);
}

// A copy of one block of keys and values. A row of a tree finds its ancestors there, at the places
// of their positions. Rows of a tree come one after the other, and mostly share ancestors.
class PathBlock {
 public:
  // `memory` must outlive this object.
  PathBlock(const AttentionArgs& args, size_t kv_head, std::vector<float>* memory)
      : args_(args), kv_head_(kv_head), base_(args.cached_len + args.tree_begin) {
    memory->resize(std::max(memory->size(), 2 * kKeyBlock * args.kv.head_size));
    keys_ = memory->data();
    values_ = keys_ + kKeyBlock * args.kv.head_size;
  }

  // Returns whether some row of the tree finds an ancestor, or itself, in the block.
  bool Covers(size_t block) const {
    return !args_.parents.empty() && (block + 1) * kKeyBlock > base_;
  }

  // Copies the rows of the block that all rows of the tree see.
  void Begin(size_t block) {
    block_ = block;
    std::fill_n(held_, kKeyBlock, -1);
    const size_t shared = base_ - std::min(base_, block * kKeyBlock);
    if (shared == 0) return;
    const float* keys = args_.kv.Keys(kv_head_, block);
    for (size_t i = 0; i < args_.kv.head_size; ++i) {
      std::copy_n(keys + i * kKeyBlock, shared, keys_ + i * kKeyBlock);
    }
    std::copy_n(args_.kv.Values(kv_head_, block), shared * args_.kv.head_size, values_);
  }

  // Puts the row's path into the block. `position` is the row's own.
  void Put(size_t node, size_t position) {
    for (auto ancestor = static_cast<int32_t>(node); ancestor >= 0;
         ancestor = args_.parents[ancestor], --position) {
      if (position / kKeyBlock < block_) return;
      if (position / kKeyBlock == block_) PutRow(ancestor, position % kKeyBlock);
    }
  }

  const float* keys() const { return keys_; }
  const float* values() const { return values_; }

 private:
  void PutRow(int32_t node, size_t place) {
    if (held_[place] == node) return;
    held_[place] = node;
    const size_t cache_row = base_ + static_cast<size_t>(node);
    const size_t head_size = args_.kv.head_size;
    const float* keys = args_.kv.Keys(kv_head_, cache_row / kKeyBlock) + cache_row % kKeyBlock;
    for (size_t i = 0; i < head_size; ++i) keys_[i * kKeyBlock + place] = keys[i * kKeyBlock];
    std::copy_n(
        args_.kv.Values(kv_head_, cache_row / kKeyBlock) + cache_row % kKeyBlock * head_size,
        head_size, values_ + place * head_size);
  }

  const AttentionArgs& args_;
  const size_t kv_head_;
  const size_t base_;  // number of cache rows that all rows of the tree see
  size_t block_ = 0;
  float* keys_;
  float* values_;
  int32_t held_[kKeyBlock] = {};  // [place]: the node whose keys and values are there; -1: none
};

// Fills in the queries of a tile, clears their outputs, and begins their softmaxes. Returns the
// largest number of keys that one of the queries sees.
HWY_INLINE size_t BeginQueries(const AttentionTile& tile, Query* queries, Softmax* softmax) {
  const AttentionArgs& args = *tile.args;
  const size_t head_size = args.kv.head_size;
  const size_t group = args.num_heads / args.kv.num_kv_heads;
  size_t max_visible = 0;
  for (size_t t = 0; t < tile.count; ++t) {
    const size_t row = (tile.begin + t) / group;
    const size_t head = tile.kv_head * group + (tile.begin + t) % group;
    Query& query = queries[t];
    query.q = args.queries + row * args.queries_stride + head * head_size;
    query.out = args.out + row * args.out_stride + head * head_size;
    query.row = args.first_row + row;
    query.num_visible = args.cached_len;
    if (args.IsOfTree(query.row)) {
      query.num_visible += args.tree_begin;
      for (auto ancestor = static_cast<int32_t>(query.row - args.tree_begin); ancestor >= 0;
           ancestor = args.parents[ancestor]) {
        ++query.num_visible;
      }
    } else {
      query.num_visible += query.row + 1;
    }
    max_visible = std::max(max_visible, query.num_visible);
    softmax[t].max = -std::numeric_limits<float>::infinity();
    std::fill_n(query.out, head_size, 0.0f);
  }
  return max_visible;
}

// Attends `count` queries to one block: 4, or 1. The last of them sees most. Nobody sees the first
// `hidden` keys.
HWY_INLINE void AttendBlock(const Query* queries, size_t count, size_t hidden, const size_t* ends,
                            const float* keys, const float* values, size_t head_size, float scale,
                            float* scores, Softmax* softmax) {
  if (count == 4) {
    Scores4(queries, keys, head_size, ends[3], scores);
    for (size_t u = 0; u < 4; ++u) {
      UpdateSoftmax(scores + u * kKeyBlock, hidden, ends[u], scale, softmax[u], queries[u].out,
                    head_size);
    }
    AddValues4(queries, scores, values, head_size, ends);
  } else if (ends[0] > 0) {
    Scores1(queries->q, keys, head_size, ends[0], scores);
    UpdateSoftmax(scores, hidden, ends[0], scale, *softmax, queries->out, head_size);
    AddValues1(scores, values, head_size, 0, 0, ends[0], queries->out);
  }
}

void AttendTile(const AttentionTile& tile) {
  const AttentionArgs& args = *tile.args;
  const size_t head_size = args.kv.head_size;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_size));
  thread_local std::vector<float> path_memory;
  Query queries[kQueryTile];
  Softmax softmax[kQueryTile];
  HWY_ALIGN float scores[4 * kKeyBlock];

  const size_t max_visible = BeginQueries(tile, queries, softmax);
  const size_t num_blocks = (max_visible + kKeyBlock - 1) / kKeyBlock;
  PathBlock path(args, tile.kv_head, &path_memory);
  for (size_t block = 0; block < num_blocks; ++block) {
    const bool has_paths = path.Covers(block);
    if (has_paths) path.Begin(block);
    for (size_t t = 0; t < tile.count;) {
      const bool is_path = has_paths && args.IsOfTree(queries[t].row);
      size_t ends[4] = {};
      size_t size = t + 4 <= tile.count ? 4 : 1;
      for (size_t u = 0; u < size; ++u) {
        ends[u] = VisibleInBlock(queries[t + u].num_visible, block);
      }
      // In a chain, later queries see more. If the first of four queries sees no key, the four are
      // computed one by one. The rows of a tree have different paths.
      if (ends[0] == 0 || (has_paths && queries[t + size - 1].row != queries[t].row)) size = 1;
      if (is_path && ends[0] > 0) {
        path.Put(queries[t].row - args.tree_begin, queries[t].num_visible - 1);
      }
      AttendBlock(&queries[t], size, block == 0 ? args.hidden_rows : 0, ends,
                  is_path ? path.keys() : args.kv.Keys(tile.kv_head, block),
                  is_path ? path.values() : args.kv.Values(tile.kv_head, block), head_size, scale,
                  scores, &softmax[t]);
      t += size;
    }
  }
  for (size_t t = 0; t < tile.count; ++t) Normalize(softmax[t], head_size, queries[t].out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
namespace {

size_t QueriesPerKvHead(const AttentionArgs& args) {
  return args.rows * (args.num_heads / args.kv.num_kv_heads);
}

size_t TilesPerKvHead(const AttentionArgs& args) {
  return (QueriesPerKvHead(args) + kQueryTile - 1) / kQueryTile;
}

}  // namespace

HWY_EXPORT(AttendTile);

void StoreKv(const StoreKvArgs& args) {
  const KvLayer& kv = args.kv;
  for (size_t r = 0; r < args.rows; ++r) {
    const size_t block = (args.first_row + r) / kKeyBlock;
    const size_t place = (args.first_row + r) % kKeyBlock;
    for (size_t h = 0; h < kv.num_kv_heads; ++h) {
      const float* key = args.keys + r * args.keys_stride + h * kv.head_size;
      const float* value = args.values + r * args.values_stride + h * kv.head_size;
      float* keys = kv.Keys(h, block) + place;
      for (size_t i = 0; i < kv.head_size; ++i) keys[i * kKeyBlock] = key[i];
      std::copy_n(value, kv.head_size, kv.Values(h, block) + place * kv.head_size);
    }
  }
}

void Attention(std::span<const AttentionArgs> sequences, ThreadPool& pool) {
  size_t num_tasks = 0;
  size_t work = 0;  // multiply-adds
  for (const AttentionArgs& args : sequences) {
    num_tasks += args.kv.num_kv_heads * TilesPerKvHead(args);
    work += args.rows * args.num_heads * args.kv.head_size *
            (args.cached_len + args.first_row + args.rows) * 2;
  }
  const auto run_task = [&](int64_t task) {
    auto index = static_cast<size_t>(task);
    for (const AttentionArgs& args : sequences) {
      const size_t tiles = TilesPerKvHead(args);
      if (index >= args.kv.num_kv_heads * tiles) {
        index -= args.kv.num_kv_heads * tiles;
        continue;
      }
      const size_t begin = index % tiles * kQueryTile;
      const size_t count = std::min(kQueryTile, QueriesPerKvHead(args) - begin);
      HWY_DYNAMIC_DISPATCH(AttendTile)({&args, index / tiles, begin, count});
      return;
    }
  };
  // Waking helpers costs about as much as this many multiply-adds.
  constexpr size_t kWorthSharing = size_t{1} << 18;
  if (work >= kWorthSharing) {
    pool.ParallelFor(static_cast<int64_t>(num_tasks), run_task);
  } else {
    for (size_t task = 0; task < num_tasks; ++task) run_task(static_cast<int64_t>(task));
  }
}

void AttentionReference(const AttentionArgs& args) {
  const size_t head_size = args.kv.head_size;
  const size_t group = args.num_heads / args.kv.num_kv_heads;
  for (size_t r = 0; r < args.rows; ++r) {
    const size_t row = args.first_row + r;
    std::vector<size_t> visible;  // cache rows
    size_t num_shared = args.cached_len + row + 1;
    if (args.IsOfTree(row)) {
      num_shared = args.cached_len + args.tree_begin;
      for (auto i = static_cast<int32_t>(row - args.tree_begin); i >= 0; i = args.parents[i]) {
        visible.push_back(num_shared + static_cast<size_t>(i));
      }
    }
    for (size_t i = args.hidden_rows; i < num_shared; ++i) visible.push_back(i);
    for (size_t head = 0; head < args.num_heads; ++head) {
      const float* q = args.queries + r * args.queries_stride + head * head_size;
      std::vector<double> weights;
      double max = -std::numeric_limits<double>::infinity();
      for (size_t cache_row : visible) {
        const float* key =
            args.kv.Keys(head / group, cache_row / kKeyBlock) + cache_row % kKeyBlock;
        double score = 0;
        for (size_t i = 0; i < head_size; ++i) {
          score += static_cast<double>(q[i]) * key[i * kKeyBlock];
        }
        weights.push_back(score / std::sqrt(static_cast<double>(head_size)));
        max = std::max(max, weights.back());
      }
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (size_t i = 0; i < head_size; ++i) {
        double mean = 0;
        for (size_t j = 0; j < visible.size(); ++j) {
          mean += weights[j] / sum *
                  args.kv.Values(head / group,
                                 visible[j] / kKeyBlock)[visible[j] % kKeyBlock * head_size + i];
        }
        args.out[r * args.out_stride + head * head_size + i] = static_cast<float>(mean);
      }
    }
  }
}

}  // namespace tandem
#endif  // HWY_ONCE
