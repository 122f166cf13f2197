#include "common/model/cpu_backend.h"

#include <algorithm>

#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace {

// Largest number of rows that go through the layers together. It is large enough to make reading
// the weights pay, and small enough to bound the scratch memory.
constexpr size_t kMaxBlockRows = 512;

}  // namespace

absl::StatusOr<std::vector<size_t>> CpuBackend::BeginPass(const ForwardPlan& plan) {
  plan_ = &plan;
  rope_.Reserve(static_cast<size_t>(plan.last_position()) + 1);
  logits_.Resize(plan.num_logits(), model_.vocabulary_size);
  if (keeps_features_) features_.Resize(plan.num_logits(), model_.hidden_size);
  // Blocks have nearly equal sizes. A last block of few rows would read all weights for little
  // work.
  const size_t num_blocks = (plan.rows() + kMaxBlockRows - 1) / kMaxBlockRows;
  std::vector<size_t> ends;
  for (size_t b = 0; b < num_blocks; ++b) ends.push_back(plan.rows() * (b + 1) / num_blocks);
  return ends;
}

absl::Status CpuBackend::Prepare(const RowBlock& block) {
  block_ = block;
  live_rows_ = block.rows();
  hidden_.Resize(live_rows_, model_.hidden_size);
  normed_.Resize(live_rows_, model_.hidden_size);
  qkv_.Resize(live_rows_, model_.attention.qkv_floats());
  mixed_.Resize(live_rows_, model_.attention.query_floats());
  gate_up_.Resize(live_rows_, 2 * model_.mlp.inner_size);
  plan_->FindSegments(block.begin, block.end, &segments_);
  return absl::OkStatus();
}

absl::Status CpuBackend::Embed() {
  ForRows(live_rows_, model_.hidden_size, [&](size_t first, size_t last) {
    tandem::Embed({.table = weights_.embedding.weight,
                   .dtype = weights_.embedding.dtype,
                   .size = model_.hidden_size,
                   .ids = plan_->token_ids().data() + block_.begin + first,
                   .rows = last - first,
                   .out = hidden_.row(first),
                   .out_stride = hidden_.stride()});
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::Qkv(size_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  const size_t query_floats = model_.attention.query_floats();
  Norm(weights.attention_norm);
  const MatMulArgs products[] = {
      Product(weights.query, normed_, qkv_), Product(weights.key, normed_, qkv_, query_floats),
      Product(weights.value, normed_, qkv_, query_floats + model_.attention.kv_floats())};
  MatMul(products, pool_);
  return absl::OkStatus();
}

absl::Status CpuBackend::Attend(size_t layer) {
  ForRows(live_rows_, model_.attention.qkv_floats(),
          [&](size_t first, size_t last) { TurnAndStore(layer, first, last); });
  attention_.clear();
  for (const PlanSegment& segment : segments_) {
    const ForwardItem& item = plan_->items()[segment.item];
    attention_.push_back({.kv = item.cache->Layer(layer),
                          .cached_len = item.cache->length(),
                          .first_row = segment.first_row,
                          .rows = segment.rows,
                          .parents = item.parents,
                          .tree_begin = item.tree_begin(),
                          .num_heads = model_.attention.num_heads,
                          .queries = qkv_.row(segment.block_row),
                          .queries_stride = qkv_.stride(),
                          .out = mixed_.row(segment.block_row),
                          .out_stride = mixed_.stride()});
  }
  Attention(attention_, pool_);
  return absl::OkStatus();
}

void CpuBackend::TurnAndStore(size_t layer, size_t first, size_t last) {
  const AttentionDescription& attention = model_.attention;
  const size_t query_floats = attention.query_floats();
  if (attention.has_head_norms) {
    const LayerWeights& weights = weights_.layers[layer];
    NormHeads(weights.query_norm, 0, attention.num_heads, first, last);
    NormHeads(weights.key_norm, query_floats, attention.num_kv_heads, first, last);
  }
  // Queries and keys lie side by side, so one call turns both.
  Rope({.x = qkv_.row(first),
        .x_stride = qkv_.stride(),
        .rows = last - first,
        .num_heads = attention.num_heads + attention.num_kv_heads,
        .head_size = attention.head_size,
        .positions = plan_->positions().data() + block_.begin + first,
        .table = rope_.data()});
  for (const PlanSegment& segment : segments_) {
    const KvCache& cache = *plan_->items()[segment.item].cache;
    const size_t from = std::max(first, segment.block_row);
    const size_t to = std::min(last, segment.block_row + segment.rows);
    if (from >= to) continue;
    StoreKv({.kv = cache.Layer(layer),
             .first_row = cache.length() + segment.first_row + from - segment.block_row,
             .rows = to - from,
             .keys = qkv_.row(from) + query_floats,
             .keys_stride = qkv_.stride(),
             .values = qkv_.row(from) + query_floats + attention.kv_floats(),
             .values_stride = qkv_.stride()});
  }
}

void CpuBackend::NormHeads(const std::vector<float>& weight, size_t first_float, size_t num_heads,
                           size_t first, size_t last) {
  RmsNorm({.x = qkv_.row(first) + first_float,
           .x_stride = qkv_.stride(),
           .rows = last - first,
           .num_heads = num_heads,
           .size = model_.attention.head_size,
           .weight = weight.data(),
           .eps = static_cast<float>(model_.norm_eps),
           .out = qkv_.row(first) + first_float,
           .out_stride = qkv_.stride()});
}

absl::Status CpuBackend::KeepRows() {
  size_t kept = 0;
  for (size_t row = 0; row < block_.rows(); ++row) {
    if (!plan_->wants_logits(block_.begin + row)) continue;
    if (row != kept) {
      std::copy_n(hidden_.row(row), model_.hidden_size, hidden_.row(kept));
      std::copy_n(mixed_.row(row), model_.attention.query_floats(), mixed_.row(kept));
    }
    ++kept;
  }
  live_rows_ = kept;
  return absl::OkStatus();
}

absl::Status CpuBackend::Output(size_t layer) {
  MatMulArgs output = Product(weights_.layers[layer].attention_output, mixed_, hidden_);
  output.add_to_out = true;
  MatMul({&output, 1}, pool_);
  progress_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status CpuBackend::Mlp(size_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  const size_t inner = model_.mlp.inner_size;
  Norm(weights.mlp_norm);
  const MatMulArgs gate_up[] = {Product(weights.gate, normed_, gate_up_),
                                Product(weights.up, normed_, gate_up_, inner)};
  MatMul(gate_up, pool_);
  // An exponential costs about eight plain operations.
  ForRows(live_rows_, 8 * inner, [&](size_t first, size_t last) {
    SwiGlu({.gate = gate_up_.row(first),
            .gate_stride = gate_up_.stride(),
            .up = gate_up_.row(first) + inner,
            .up_stride = gate_up_.stride(),
            .rows = last - first,
            .size = inner});
  });
  MatMulArgs down = Product(weights.down, gate_up_, hidden_);
  down.add_to_out = true;
  MatMul({&down, 1}, pool_);
  progress_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status CpuBackend::Logits() {
  Norm(weights_.final_norm);
  MatMulArgs logits = Product(weights_.output, normed_, logits_);
  logits.out = logits_.row(block_.logits_row);
  MatMul({&logits, 1}, pool_);
  if (!keeps_features_) return absl::OkStatus();
  for (size_t i = 0; i < live_rows_; ++i) {
    std::copy_n(normed_.row(i), model_.hidden_size, features_.row(block_.logits_row + i));
  }
  return absl::OkStatus();
}

LogitsView CpuBackend::logits() { return {logits_.row(0), logits_.stride(), plan_->num_logits()}; }

void CpuBackend::Norm(const std::vector<float>& weight) {
  ForRows(live_rows_, 2 * model_.hidden_size, [&](size_t first, size_t last) {
    RmsNorm({.x = hidden_.row(first),
             .x_stride = hidden_.stride(),
             .rows = last - first,
             .size = model_.hidden_size,
             .weight = weight.data(),
             .eps = static_cast<float>(model_.norm_eps),
             .out = normed_.row(first),
             .out_stride = normed_.stride()});
  });
}

MatMulArgs CpuBackend::Product(const Linear& linear, ScratchRows& x, ScratchRows& out,
                               size_t out_column) const {
  return {.x = x.row(0),
          .x_stride = x.stride(),
          .rows = live_rows_,
          .w = linear.weight,
          .dtype = linear.dtype,
          .out_features = linear.out_features,
          .in_features = linear.in_features,
          .bias = linear.bias.empty() ? nullptr : linear.bias.data(),
          .out = out.row(0) + out_column,
          .out_stride = out.stride(),
          .add_to_out = false};
}

template <typename F>
void CpuBackend::ForRows(size_t rows, size_t floats_per_row, const F& run) {
  // A task is tens of microseconds of work. Waking a helper thread costs less.
  constexpr size_t kFloatsPerTask = size_t{1} << 16;
  const size_t rows_per_task = std::max<size_t>(1, kFloatsPerTask / floats_per_row);
  if (rows <= rows_per_task) {
    run(size_t{0}, rows);
    return;
  }
  const size_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  pool_.ParallelFor(static_cast<int64_t>(tasks), [&](int64_t task) {
    const size_t first = static_cast<size_t>(task) * rows_per_task;
    run(first, std::min(rows, first + rows_per_task));
  });
}

}  // namespace tandem
