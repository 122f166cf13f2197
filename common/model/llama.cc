#include "common/model/llama.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "common/model/checkpoint.h"
#include "common/model/llama_weights.h"
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

// What one slot adds to a block of rows.
struct Segment {
  KvCache* cache = nullptr;
  size_t cached_len = 0;
  size_t first_row = 0;  // of the item
  size_t block_row = 0;  // where it begins in the block
  size_t rows = 0;
  std::span<const int32_t> parents;
};

class CpuLlama final : public LlamaModel {
 public:
  CpuLlama(ModelConfig config, std::unique_ptr<Checkpoint> checkpoint, LlamaWeights weights,
           ThreadPool* pool)
      : config_(std::move(config)),
        checkpoint_(std::move(checkpoint)),
        weights_(std::move(weights)),
        rope_(config_),
        pool_(*pool) {}

  const ModelConfig& config() const override { return config_; }
  uint64_t weight_bytes() const override { return checkpoint_->mapped_bytes(); }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override;
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

 private:
  // Lays out the rows of the pass in token_ids_, positions_ and wants_logits_. Caches reserve pages,
  // and change no row.
  absl::Status Plan(std::span<const ForwardItem> items);
  absl::Status PlanItem(const ForwardItem& item, size_t index);

  // Takes rows [begin, end) of the pass through all layers; writes logits from logits row
  // `logits_row` on and returns the row after the last.
  size_t RunBlock(std::span<const ForwardItem> items, size_t begin, size_t end, size_t logits_row);
  void FindSegments(std::span<const ForwardItem> items, size_t begin, size_t end);
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
  RopeTable rope_;
  ThreadPool& pool_;
  std::atomic<uint64_t> progress_ = 0;  // two for each layer: after attention and at its end

  // Of the pass.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<uint8_t> wants_logits_;
  size_t num_logits_ = 0;
  Scratch logits_;  // [num_logits, vocabulary]

  // Of a block of rows.
  std::vector<Segment> segments_;
  std::vector<AttentionArgs> attention_;
  Scratch hidden_;   // [rows, hidden] the residual stream
  Scratch normed_;   // [rows, hidden]
  Scratch qkv_;      // [rows, (heads + 2 * KV heads) * head_size]
  Scratch mixed_;    // [rows, heads * head_size] what attention gives
  Scratch gate_up_;  // [rows, 2 * inner]
};

absl::StatusOr<LogitsView> CpuLlama::Forward(std::span<const ForwardItem> items) {
  TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
  TANDEM_RETURN_IF_ERROR(Plan(items));
  logits_.Resize(num_logits_, config_.vocabulary_size);

  const size_t rows = token_ids_.size();
  const size_t num_blocks = (rows + kMaxBlockRows - 1) / kMaxBlockRows;
  size_t logits_row = 0;
  for (size_t b = 0; b < num_blocks; ++b) {
    // Blocks of even size: a last one of few rows would cost a pass over the weights for little.
    logits_row = RunBlock(items, rows * b / num_blocks, rows * (b + 1) / num_blocks, logits_row);
  }
  for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
  return LogitsView{logits_.row(0), logits_.stride(), num_logits_};
}

absl::Status CpuLlama::Plan(std::span<const ForwardItem> items) {
  token_ids_.clear();
  positions_.clear();
  wants_logits_.clear();
  num_logits_ = 0;
  for (size_t i = 0; i < items.size(); ++i) TANDEM_RETURN_IF_ERROR(PlanItem(items[i], i));
  for (const ForwardItem& item : items) {
    TANDEM_RETURN_IF_ERROR(item.cache->Reserve(item.token_ids.size()));
  }
  int32_t last_position = 0;
  for (const int32_t position : positions_) last_position = std::max(last_position, position);
  rope_.Reserve(static_cast<size_t>(last_position) + 1);
  return absl::OkStatus();
}

absl::Status CpuLlama::PlanItem(const ForwardItem& item, size_t index) {
  const auto refuse = [&](const std::string& what) {
    return InvalidArgument("forward pass: item " + std::to_string(index) + ": " + what);
  };
  const size_t rows = item.token_ids.size();
  if (item.cache == nullptr || rows == 0) return refuse("has no cache or no tokens");
  if (rows > item.cache->capacity() - item.cache->length()) {
    return refuse("adds " + std::to_string(rows) + " rows to " +
                  std::to_string(item.cache->length()) + " of " +
                  std::to_string(item.cache->capacity()));
  }
  if (item.num_logits > rows) {
    return refuse("wants logits of " + std::to_string(item.num_logits) + " of its " +
                  std::to_string(rows) + " rows");
  }
  if (!item.parents.empty() && item.parents.size() != rows) {
    return refuse("has " + std::to_string(item.parents.size()) + " parents for " +
                  std::to_string(rows) + " rows");
  }
  const size_t first = positions_.size();
  for (size_t row = 0; row < rows; ++row) {
    const int32_t id = item.token_ids[row];
    if (id < 0 || static_cast<size_t>(id) >= config_.vocabulary_size) {
      return refuse("token id " + std::to_string(id) + " is not in [0, " +
                    std::to_string(config_.vocabulary_size) + ")");
    }
    auto position = static_cast<int32_t>(item.cache->length());
    if (item.parents.empty()) {
      position += static_cast<int32_t>(row);
    } else {
      const int32_t parent = item.parents[row];
      if (parent < -1 || parent >= static_cast<int32_t>(row)) {
        return refuse("row " + std::to_string(row) + " has parent " + std::to_string(parent) +
                      " (want an earlier row or -1)");
      }
      if (parent >= 0) position = positions_[first + static_cast<size_t>(parent)] + 1;
    }
    token_ids_.push_back(id);
    positions_.push_back(position);
    wants_logits_.push_back(row + item.num_logits >= rows ? 1 : 0);
  }
  num_logits_ += item.num_logits;
  return absl::OkStatus();
}

size_t CpuLlama::RunBlock(std::span<const ForwardItem> items, size_t begin, size_t end,
                          size_t logits_row) {
  const size_t rows = end - begin;
  const size_t head_floats = config_.num_heads * config_.head_size;
  const size_t kv_floats = config_.num_kv_heads * config_.head_size;
  hidden_.Resize(rows, config_.hidden_size);
  normed_.Resize(rows, config_.hidden_size);
  qkv_.Resize(rows, head_floats + 2 * kv_floats);
  mixed_.Resize(rows, head_floats);
  gate_up_.Resize(rows, 2 * config_.intermediate_size);
  FindSegments(items, begin, end);

  ForRows(rows, config_.hidden_size, [&](size_t first, size_t last) {
    Embed({.table = weights_.embedding.weight,
           .dtype = weights_.embedding.dtype,
           .size = config_.hidden_size,
           .ids = token_ids_.data() + begin + first,
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
    Attend(l, rows, positions_.data() + begin);
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

void CpuLlama::FindSegments(std::span<const ForwardItem> items, size_t begin, size_t end) {
  segments_.clear();
  size_t item_begin = 0;
  for (const ForwardItem& item : items) {
    const size_t item_end = item_begin + item.token_ids.size();
    const size_t first = std::max(begin, item_begin);
    const size_t last = std::min(end, item_end);
    if (first < last) {
      segments_.push_back({.cache = item.cache,
                           .cached_len = item.cache->length(),
                           .first_row = first - item_begin,
                           .block_row = first - begin,
                           .rows = last - first,
                           .parents = item.parents});
    }
    item_begin = item_end;
  }
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
    for (const Segment& segment : segments_) {
      const size_t from = std::max(first, segment.block_row);
      const size_t to = std::min(last, segment.block_row + segment.rows);
      if (from >= to) continue;
      StoreKv({.kv = segment.cache->Layer(layer_index),
               .first_row = segment.cached_len + segment.first_row + from - segment.block_row,
               .rows = to - from,
               .keys = qkv_.row(from) + head_floats,
               .keys_stride = qkv_.stride(),
               .values = qkv_.row(from) + head_floats + kv_floats,
               .values_stride = qkv_.stride()});
    }
  });
  attention_.clear();
  for (const Segment& segment : segments_) {
    attention_.push_back({.kv = segment.cache->Layer(layer_index),
                          .cached_len = segment.cached_len,
                          .first_row = segment.first_row,
                          .rows = segment.rows,
                          .parents = segment.parents,
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
    if (wants_logits_[begin + row] == 0) continue;
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
