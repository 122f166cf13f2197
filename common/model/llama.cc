#include "common/model/llama.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "common/model/checkpoint.h"
#include "common/model/forward_plan.h"
#include "common/model/llama_weights.h"
#include "common/model/model_fingerprint.h"
#include "common/model/rope_table.h"
#include "common/status.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace {

// Rows that go through the layers together: enough to make a pass over the weights pay, few enough
// to bound the scratch.
constexpr size_t kMaxBlockRows = 512;

// A row-major matrix of scratch that only grows. Rows begin on cache lines, and not all on the same
// cache set.
class Scratch {
 public:
  void Resize(size_t rows, size_t columns) {
    constexpr size_t kLine = 16;  // floats
    stride_ = (columns + kLine - 1) / kLine * kLine + kLine;
    if (rows * stride_ <= capacity_) return;
    capacity_ = rows * stride_;
    data_.reset(static_cast<float*>(std::aligned_alloc(64, capacity_ * sizeof(float))));
    if (data_ == nullptr) throw std::bad_alloc();
  }

  float* row(size_t i) { return data_.get() + i * stride_; }
  size_t stride() const { return stride_; }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  std::unique_ptr<float, Free> data_;
  size_t capacity_ = 0;
  size_t stride_ = 0;
};

class CpuLlama final : public LlamaModel {
 public:
  CpuLlama(ModelConfig config, std::unique_ptr<Checkpoint> checkpoint, LlamaWeights weights,
           ThreadPool* pool)
      : config_(std::move(config)),
        checkpoint_(std::move(checkpoint)),
        weights_(std::move(weights)),
        fingerprint_(FingerprintModel(weights_, config_)),
        rope_(config_),
        pool_(*pool) {}

  const ModelConfig& config() const override { return config_; }
  uint64_t weight_bytes() const override { return checkpoint_->mapped_bytes(); }
  std::string fingerprint() const override { return fingerprint_; }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override;
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

 private:
  // Takes rows [begin, end) of the pass through all layers; writes logits from logits row
  // `logits_row` on and returns the row after the last.
  size_t RunBlock(size_t begin, size_t end, size_t logits_row);
  void Attend(size_t layer_index, size_t rows, const int32_t* positions);
  // Moves the rows that want logits to the front; the others have nothing more to give. Returns
  // their number.
  size_t KeepLogitsRows(size_t begin, size_t end);
  void Mlp(const LlamaLayerWeights& layer, size_t rows);
  void Norm(const std::vector<float>& weight, size_t rows);

  MatMulArgs Product(const Linear& linear, Scratch& x, size_t rows, Scratch& out,
                     size_t out_column = 0) const;
  // Calls run(begin, end) for pieces of [0, rows), in parallel where there is enough to do.
  template <typename F>
  void ForRows(size_t rows, size_t floats_per_row, const F& run);

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  LlamaWeights weights_;
  std::string fingerprint_;
  RopeTable rope_;
  ThreadPool& pool_;
  std::atomic<uint64_t> progress_ = 0;  // two for each layer: after attention and at its end

  // Of the pass.
  ForwardPlan plan_;
  Scratch logits_;  // [num_logits, vocabulary]

  // Of a block of rows.
  std::vector<PlanSegment> segments_;
  std::vector<AttentionArgs> attention_;
  Scratch hidden_;   // [rows, hidden] the residual stream
  Scratch normed_;   // [rows, hidden]
  Scratch qkv_;      // [rows, (heads + 2 * KV heads) * head_size]
  Scratch mixed_;    // [rows, heads * head_size] what attention gives
  Scratch gate_up_;  // [rows, 2 * inner]
};

absl::StatusOr<LogitsView> CpuLlama::Forward(std::span<const ForwardItem> items) {
  TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
  TANDEM_RETURN_IF_ERROR(plan_.Make(items, config_.vocabulary_size));
  rope_.Reserve(static_cast<size_t>(plan_.last_position()) + 1);
  logits_.Resize(plan_.num_logits(), config_.vocabulary_size);

  const size_t rows = plan_.rows();
  const size_t num_blocks = (rows + kMaxBlockRows - 1) / kMaxBlockRows;
  size_t logits_row = 0;
  for (size_t b = 0; b < num_blocks; ++b) {
    // Blocks of even size: a last one of few rows would cost a pass over the weights for little.
    logits_row = RunBlock(rows * b / num_blocks, rows * (b + 1) / num_blocks, logits_row);
  }
  for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
  return LogitsView{logits_.row(0), logits_.stride(), plan_.num_logits()};
}

size_t CpuLlama::RunBlock(size_t begin, size_t end, size_t logits_row) {
  const size_t rows = end - begin;
  const size_t head_floats = config_.num_heads * config_.head_size;
  const size_t kv_floats = config_.num_kv_heads * config_.head_size;
  hidden_.Resize(rows, config_.hidden_size);
  normed_.Resize(rows, config_.hidden_size);
  qkv_.Resize(rows, head_floats + 2 * kv_floats);
  mixed_.Resize(rows, head_floats);
  gate_up_.Resize(rows, 2 * config_.intermediate_size);
  plan_.FindSegments(begin, end, &segments_);

  ForRows(rows, config_.hidden_size, [&](size_t first, size_t last) {
    Embed({.table = weights_.embedding.weight,
           .dtype = weights_.embedding.dtype,
           .size = config_.hidden_size,
           .ids = plan_.token_ids().data() + begin + first,
           .rows = last - first,
           .out = hidden_.row(first),
           .out_stride = hidden_.stride()});
  });

  size_t live_rows = rows;
  for (size_t l = 0; l < config_.num_layers; ++l) {
    const LlamaLayerWeights& layer = weights_.layers[l];
    Norm(layer.attention_norm, rows);
    const MatMulArgs qkv[] = {Product(layer.query, normed_, rows, qkv_),
                              Product(layer.key, normed_, rows, qkv_, head_floats),
                              Product(layer.value, normed_, rows, qkv_, head_floats + kv_floats)};
    MatMul(qkv, pool_);
    Attend(l, rows, plan_.positions().data() + begin);
    if (l + 1 == config_.num_layers) live_rows = KeepLogitsRows(begin, end);
    if (live_rows == 0) return logits_row;
    MatMulArgs output = Product(layer.attention_output, mixed_, live_rows, hidden_);
    output.add_to_out = true;
    MatMul({&output, 1}, pool_);
    progress_.fetch_add(1, std::memory_order_relaxed);
    Mlp(layer, live_rows);
    progress_.fetch_add(1, std::memory_order_relaxed);
  }

  Norm(weights_.final_norm, live_rows);
  MatMulArgs logits = Product(weights_.output, normed_, live_rows, logits_);
  logits.out = logits_.row(logits_row);
  MatMul({&logits, 1}, pool_);
  return logits_row + live_rows;
}

void CpuLlama::Attend(size_t layer_index, size_t rows, const int32_t* positions) {
  const size_t head_floats = config_.num_heads * config_.head_size;
  const size_t kv_floats = config_.num_kv_heads * config_.head_size;
  ForRows(rows, head_floats + 2 * kv_floats, [&](size_t first, size_t last) {
    // Queries and keys lie side by side: one call turns both.
    Rope({.x = qkv_.row(first),
          .x_stride = qkv_.stride(),
          .rows = last - first,
          .num_heads = config_.num_heads + config_.num_kv_heads,
          .head_size = config_.head_size,
          .positions = positions + first,
          .table = rope_.data()});
    for (const PlanSegment& segment : segments_) {
      const KvCache& cache = *plan_.items()[segment.item].cache;
      const size_t from = std::max(first, segment.block_row);
      const size_t to = std::min(last, segment.block_row + segment.rows);
      if (from >= to) continue;
      StoreKv({.kv = cache.Layer(layer_index),
               .first_row = cache.length() + segment.first_row + from - segment.block_row,
               .rows = to - from,
               .keys = qkv_.row(from) + head_floats,
               .keys_stride = qkv_.stride(),
               .values = qkv_.row(from) + head_floats + kv_floats,
               .values_stride = qkv_.stride()});
    }
  });
  attention_.clear();
  for (const PlanSegment& segment : segments_) {
    const ForwardItem& item = plan_.items()[segment.item];
    attention_.push_back({.kv = item.cache->Layer(layer_index),
                          .cached_len = item.cache->length(),
                          .first_row = segment.first_row,
                          .rows = segment.rows,
                          .parents = item.parents,
                          .num_heads = config_.num_heads,
                          .queries = qkv_.row(segment.block_row),
                          .queries_stride = qkv_.stride(),
                          .out = mixed_.row(segment.block_row),
                          .out_stride = mixed_.stride()});
  }
  Attention(attention_, pool_);
}

size_t CpuLlama::KeepLogitsRows(size_t begin, size_t end) {
  const size_t head_floats = config_.num_heads * config_.head_size;
  size_t kept = 0;
  for (size_t row = 0; row < end - begin; ++row) {
    if (!plan_.wants_logits(begin + row)) continue;
    if (row != kept) {
      std::copy_n(hidden_.row(row), config_.hidden_size, hidden_.row(kept));
      std::copy_n(mixed_.row(row), head_floats, mixed_.row(kept));
    }
    ++kept;
  }
  return kept;
}

void CpuLlama::Mlp(const LlamaLayerWeights& layer, size_t rows) {
  const size_t inner = config_.intermediate_size;
  Norm(layer.mlp_norm, rows);
  const MatMulArgs gate_up[] = {Product(layer.gate, normed_, rows, gate_up_),
                                Product(layer.up, normed_, rows, gate_up_, inner)};
  MatMul(gate_up, pool_);
  ForRows(rows, 8 * inner,
          [&](size_t first, size_t last) {  // exp costs about eight plain operations
            SwiGlu({.gate = gate_up_.row(first),
                    .gate_stride = gate_up_.stride(),
                    .up = gate_up_.row(first) + inner,
                    .up_stride = gate_up_.stride(),
                    .rows = last - first,
                    .size = inner});
          });
  MatMulArgs down = Product(layer.down, gate_up_, rows, hidden_);
  down.add_to_out = true;
  MatMul({&down, 1}, pool_);
}

void CpuLlama::Norm(const std::vector<float>& weight, size_t rows) {
  ForRows(rows, 2 * config_.hidden_size, [&](size_t first, size_t last) {
    RmsNorm({.x = hidden_.row(first),
             .x_stride = hidden_.stride(),
             .rows = last - first,
             .size = config_.hidden_size,
             .weight = weight.data(),
             .eps = static_cast<float>(config_.rms_norm_eps),
             .out = normed_.row(first),
             .out_stride = normed_.stride()});
  });
}

MatMulArgs CpuLlama::Product(const Linear& linear, Scratch& x, size_t rows, Scratch& out,
                             size_t out_column) const {
  return {.x = x.row(0),
          .x_stride = x.stride(),
          .rows = rows,
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
void CpuLlama::ForRows(size_t rows, size_t floats_per_row, const F& run) {
  constexpr size_t kFloatsPerTask = size_t{1}
                                    << 16;  // tens of microseconds: more than waking a helper costs
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

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Load(const std::filesystem::path& folder,
                                                             ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Load(folder));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(LlamaWeights weights, LlamaWeights::Load(*checkpoint, config));
  checkpoint->WillNeed();
  return std::make_unique<CpuLlama>(std::move(config), std::move(checkpoint), std::move(weights),
                                    pool);
}

}  // namespace tandem
