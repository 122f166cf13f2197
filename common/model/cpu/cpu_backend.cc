#include "common/model/cpu/cpu_backend.h"

#include <algorithm>

#include "kernels/embedding.h"
#include "kernels/matmul.h"

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
  layer_.Begin(block.rows());
  plan_->FindSegments(block.begin, block.end, &segments_);
  return absl::OkStatus();
}

absl::Status CpuBackend::Embed() {
  layer_.ForRows(model_.hidden_size, [&](size_t first, size_t last) {
    tandem::Embed({.table = weights_.embedding.weight,
                   .dtype = weights_.embedding.dtype,
                   .size = model_.hidden_size,
                   .ids = plan_->token_ids().data() + block_.begin + first,
                   .rows = last - first,
                   .out = layer_.hidden().row(first),
                   .out_stride = layer_.hidden().stride()});
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::Qkv(size_t layer) {
  layer_.Norm(weights_.layers[layer].attention_norm);
  layer_.Qkv(weights_.layers[layer], layer_.normed());
  return absl::OkStatus();
}

absl::Status CpuBackend::Attend(size_t layer) {
  attention_.clear();
  for (const PlanSegment& segment : segments_) {
    const ForwardItem& item = plan_->items()[segment.item];
    AttentionArgs& args = attention_.emplace_back();
    args.kv = item.cache->Layer(layer);
    args.cached_len = item.cache->length();
    args.first_row = segment.first_row;
    args.rows = segment.rows;
    args.parents = item.parents;
    args.tree_begin = item.tree_begin();
  }
  layer_.Attend(weights_.layers[layer], plan_->positions().data() + block_.begin, rope_.data(),
                attention_);
  return absl::OkStatus();
}

absl::Status CpuBackend::StoreFeatures(size_t layer) {
  for (size_t part = 0; part < row_features_.parts.size(); ++part) {
    if (row_features_.parts[part].layer != layer) continue;
    const bool is_normed = row_features_.parts[part].is_normed;
    if (is_normed) layer_.Norm(weights_.final_norm);
    ScratchRows& rows = is_normed ? layer_.normed() : layer_.hidden();
    for (const PlanSegment& segment : segments_) {
      KvCache& cache = *plan_->items()[segment.item].cache;
      for (size_t i = 0; i < segment.rows; ++i) {
        float* const feature = cache.Feature(cache.length() + segment.first_row + i);
        std::copy_n(rows.row(segment.block_row + i), model_.hidden_size,
                    feature + part * model_.hidden_size);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CpuBackend::KeepRows() {
  size_t kept = 0;
  for (size_t row = 0; row < block_.rows(); ++row) {
    if (!plan_->wants_logits(block_.begin + row)) continue;
    if (row != kept) {
      std::copy_n(layer_.hidden().row(row), model_.hidden_size, layer_.hidden().row(kept));
      std::copy_n(layer_.mixed().row(row), model_.attention.query_floats(),
                  layer_.mixed().row(kept));
    }
    ++kept;
  }
  layer_.Shrink(kept);
  return absl::OkStatus();
}

absl::Status CpuBackend::Output(size_t layer) {
  layer_.Output(weights_.layers[layer]);
  progress_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status CpuBackend::Mlp(size_t layer) {
  layer_.Mlp(weights_.layers[layer]);
  progress_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status CpuBackend::Logits() {
  layer_.Norm(weights_.final_norm);
  MatMulArgs logits = layer_.Product(weights_.output, layer_.normed(), logits_);
  logits.out = logits_.row(block_.logits_row);
  MatMul({&logits, 1}, pool_);
  if (!keeps_features_) return absl::OkStatus();
  for (size_t i = 0; i < layer_.rows(); ++i) {
    std::copy_n(layer_.normed().row(i), model_.hidden_size, features_.row(block_.logits_row + i));
  }
  return absl::OkStatus();
}

LogitsView CpuBackend::logits() { return {logits_.row(0), logits_.stride(), plan_->num_logits()}; }

}  // namespace tandem
