#include "common/model/heads/cpu_steps.h"

#include <algorithm>

#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

constexpr size_t kMaxLooks = 64;  // rows of logits at once

}  // namespace

CpuSteps::CpuSteps(const ModelDescription* model, const Linear* output,
                   const std::vector<float>* norm, ThreadPool* pool)
    : model_(*model),
      output_(*output),
      norm_(*norm),
      pool_(*pool),
      rope_(*model),
      layer_(model, pool),
      guesses_(kMaxGuesses * model->hidden_size) {}

absl::Status CpuSteps::Run(const StepPass& pass) {
  layer_.Begin(pass.rows.size());
  ReadRows(pass);
  rope_.Reserve(static_cast<size_t>(*std::max_element(positions_.begin(), positions_.end())) + 1);
  Compute(pass);
  for (size_t row = 0; row < pass.rows.size(); ++row) {
    const int32_t kept_as = pass.rows[row].kept_as;
    if (kept_as < 0) continue;
    std::copy_n(layer_.hidden().row(row), model_.hidden_size,
                guesses_.data() + static_cast<size_t>(kept_as) * model_.hidden_size);
  }
  return absl::OkStatus();
}

void CpuSteps::ReadRows(const StepPass& pass) {
  token_ids_.clear();
  positions_.clear();
  for (const StepPass::Row& row : pass.rows) {
    token_ids_.push_back(row.token_id);
    positions_.push_back(static_cast<int32_t>(row.position));
  }
}

void CpuSteps::Embed(const Linear& embedding, ScratchRows& out) {
  layer_.ForRows(embedding.in_features, [&](size_t first, size_t last) {
    tandem::Embed({.table = embedding.weight,
                   .dtype = embedding.dtype,
                   .size = embedding.in_features,
                   .ids = token_ids_.data() + first,
                   .rows = last - first,
                   .out = out.row(first),
                   .out_stride = out.stride()});
  });
}

void CpuSteps::Norm(const std::vector<float>& weight, ScratchRows& x, ScratchRows& out,
                    size_t column) {
  layer_.ForRows(2 * weight.size(), [&](size_t first, size_t last) {
    RmsNorm({.x = x.row(first),
             .x_stride = x.stride(),
             .rows = last - first,
             .size = weight.size(),
             .weight = weight.data(),
             .eps = static_cast<float>(model_.norm_eps),
             .out = out.row(first) + column,
             .out_stride = out.stride()});
  });
}

void CpuSteps::Attend(const LayerWeights& weights, const StepPass& pass, size_t index,
                      size_t hidden_rows) {
  segments_.clear();
  for (const StepPass::Sequence& sequence : pass.sequences) {
    AttentionArgs& segment = segments_.emplace_back();
    segment.kv = sequence.cache->Layer(index);
    segment.hidden_rows = hidden_rows;
    segment.cached_len = sequence.length;
    segment.first_row = sequence.first_row;
    segment.rows = sequence.rows;
    segment.parents = sequence.parents;
  }
  layer_.Attend(weights, positions_.data(), rope_.data(), segments_);
}

absl::StatusOr<std::vector<std::vector<Guess>>> CpuSteps::LookAhead(
    std::span<const int32_t> guesses, int32_t count) {
  std::vector<std::vector<Guess>> found(guesses.size());
  for (size_t begin = 0; begin < guesses.size(); begin += kMaxLooks) {
    const size_t rows = std::min(guesses.size() - begin, kMaxLooks);
    LookAhead(guesses.subspan(begin, rows), count, std::span(found).subspan(begin, rows));
  }
  return found;
}

void CpuSteps::LookAhead(std::span<const int32_t> guesses, int32_t count,
                         std::span<std::vector<Guess>> found) {
  ends_.Resize(guesses.size(), model_.hidden_size);
  logits_.Resize(guesses.size(), output_.out_features);
  for (size_t i = 0; i < guesses.size(); ++i) {
    std::copy_n(guess(guesses[i]), model_.hidden_size, ends_.row(i));
  }
  layer_.Shrink(guesses.size());
  if (!norm_.empty()) Norm(norm_, ends_, ends_, 0);
  const MatMulArgs product = layer_.Product(output_, ends_, logits_);
  MatMul({&product, 1}, pool_);
  pool_.ParallelFor(static_cast<int64_t>(guesses.size()), [&](int64_t task) {
    const auto i = static_cast<size_t>(task);
    found[i] = LikeliestGuesses({logits_.row(i), output_.out_features}, count);
  });
}

}  // namespace tandem
