#include "common/model/heads/cpu_eagle.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"

namespace tandem {
namespace {

constexpr size_t kMaxLooks = 64;  // rows of logits at once

}  // namespace

absl::StatusOr<std::unique_ptr<Eagle>> CpuEagle::Load(const std::filesystem::path& folder,
                                                      const ModelDescription& target,
                                                      const ModelWeights& target_weights,
                                                      ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(OpenedEagle opened, OpenedEagle::Open(folder, target, target_weights));
  const double step_cost = opened.weights.StepCost(target_weights);
  std::unique_ptr<CpuEagle> device(new CpuEagle(std::move(opened), target.num_layers, pool));
  return std::make_unique<Eagle>(std::move(device), target.hidden_size, step_cost);
}

CpuEagle::CpuEagle(OpenedEagle opened, size_t layer_index, ThreadPool* pool)
    : opened_(std::move(opened)),
      layer_index_(layer_index),
      pool_(*pool),
      rope_(opened_.description),
      layer_(&opened_.description, pool),
      guesses_(kMaxGuesses * opened_.description.hidden_size) {}

absl::Status CpuEagle::ClearRowZero(KvCache& cache) {
  const std::vector<float> zeros(opened_.description.attention.kv_floats());
  StoreKv({.kv = cache.Layer(layer_index_),
           .first_row = 0,
           .rows = 1,
           .keys = zeros.data(),
           .keys_stride = zeros.size(),
           .values = zeros.data(),
           .values_stride = zeros.size()});
  return absl::OkStatus();
}

void CpuEagle::Embed(const EaglePass& pass) {
  const size_t hidden = opened_.description.hidden_size;
  token_ids_.clear();
  features_.clear();
  positions_.clear();
  size_t row = 0;
  for (const EaglePass::Sequence& sequence : pass.sequences) {
    for (size_t i = 0; i < sequence.rows; ++i) {
      const EaglePass::Row& from = pass.rows[row++];
      token_ids_.push_back(from.token_id);
      positions_.push_back(static_cast<int32_t>(from.position));
      features_.push_back(from.guess < 0
                              ? sequence.cache->Feature(from.position - 1)
                              : guesses_.data() + static_cast<size_t>(from.guess) * hidden);
    }
  }
  const Linear& embedding = opened_.weights.embedding;
  input_.Resize(row, 2 * hidden);
  layer_.ForRows(2 * hidden, [&](size_t first, size_t last) {
    tandem::Embed({.table = embedding.weight,
                   .dtype = embedding.dtype,
                   .size = hidden,
                   .ids = token_ids_.data() + first,
                   .rows = last - first,
                   .out = input_.row(first),
                   .out_stride = input_.stride()});
    for (size_t at = first; at < last; ++at) {
      std::copy_n(features_[at], hidden, input_.row(at) + hidden);
    }
  });
}

void CpuEagle::FindSegments(const EaglePass& pass) {
  segments_.clear();
  for (const EaglePass::Sequence& sequence : pass.sequences) {
    AttentionArgs& segment = segments_.emplace_back();
    segment.kv = sequence.cache->Layer(layer_index_);
    segment.hidden_rows = 1;
    segment.cached_len = sequence.length;
    segment.first_row = sequence.first_row;
    segment.rows = sequence.rows;
    segment.parents = sequence.parents;
  }
}

absl::Status CpuEagle::Run(const EaglePass& pass) {
  const EagleWeights& weights = opened_.weights;
  layer_.Begin(pass.rows.size());
  Embed(pass);
  FindSegments(pass);
  rope_.Reserve(static_cast<size_t>(*std::max_element(positions_.begin(), positions_.end())) + 1);
  const MatMulArgs fused = layer_.Product(weights.fuse, input_, layer_.hidden());
  MatMul({&fused, 1}, pool_);
  layer_.Qkv(weights.layer, layer_.hidden());
  layer_.Attend(weights.layer, positions_.data(), rope_.data(), segments_);
  layer_.Output(weights.layer);
  layer_.Mlp(weights.layer);
  const size_t hidden = opened_.description.hidden_size;
  for (size_t row = 0; row < pass.rows.size(); ++row) {
    const int32_t kept_as = pass.rows[row].kept_as;
    if (kept_as < 0) continue;
    std::copy_n(layer_.hidden().row(row), hidden,
                guesses_.data() + static_cast<size_t>(kept_as) * hidden);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<Guess>>> CpuEagle::LookAhead(
    std::span<const int32_t> guesses) {
  std::vector<std::vector<Guess>> found(guesses.size());
  for (size_t begin = 0; begin < guesses.size(); begin += kMaxLooks) {
    const size_t count = std::min(guesses.size() - begin, kMaxLooks);
    LookAhead(guesses.subspan(begin, count), std::span(found).subspan(begin, count));
  }
  return found;
}

void CpuEagle::LookAhead(std::span<const int32_t> guesses, std::span<std::vector<Guess>> found) {
  const Linear& output = opened_.weights.output;
  const size_t hidden = opened_.description.hidden_size;
  ends_.Resize(guesses.size(), hidden);
  logits_.Resize(guesses.size(), output.out_features);
  for (size_t i = 0; i < guesses.size(); ++i) {
    std::copy_n(guesses_.data() + static_cast<size_t>(guesses[i]) * hidden, hidden, ends_.row(i));
  }
  layer_.Shrink(guesses.size());
  const MatMulArgs product = layer_.Product(output, ends_, logits_);
  MatMul({&product, 1}, pool_);
  pool_.ParallelFor(static_cast<int64_t>(guesses.size()), [&](int64_t task) {
    const auto i = static_cast<size_t>(task);
    found[i] = LikeliestGuesses({logits_.row(i), output.out_features});
  });
}

}  // namespace tandem
