#include "common/model/heads/cpu_eagle.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

constexpr size_t kMaxLooks = 64;  // rows of logits at once

}  // namespace

absl::StatusOr<std::unique_ptr<Eagle>> CpuEagle::Load(const std::filesystem::path& folder,
                                                      const ModelDescription& target,
                                                      const ModelWeights& target_weights,
                                                      ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(OpenedEagle opened, OpenedEagle::Open(folder, target, target_weights));
  EagleTraits traits = opened.Traits(target_weights);
  std::unique_ptr<CpuEagle> device(new CpuEagle(std::move(opened), target.num_layers, pool));
  return std::make_unique<Eagle>(std::move(device), std::move(traits));
}

CpuEagle::CpuEagle(OpenedEagle opened, size_t layer_index, ThreadPool* pool)
    : opened_(std::move(opened)),
      layer_index_(layer_index),
      pool_(*pool),
      rope_(opened_.description.layer),
      layer_(&opened_.description.layer, pool),
      guesses_(kMaxGuesses * opened_.description.layer.hidden_size) {}

absl::Status CpuEagle::ClearRowZero(KvCache& cache) {
  const std::vector<float> zeros(opened_.description.layer.attention.kv_floats());
  StoreKv({.kv = cache.Layer(layer_index_),
           .first_row = 0,
           .rows = 1,
           .keys = zeros.data(),
           .keys_stride = zeros.size(),
           .values = zeros.data(),
           .values_stride = zeros.size()});
  return absl::OkStatus();
}

void CpuEagle::ReadRows(const EaglePass& pass) {
  const size_t hidden = opened_.description.layer.hidden_size;
  token_ids_.clear();
  states_.clear();
  positions_.clear();
  size_t row = 0;
  for (const EaglePass::Sequence& sequence : pass.sequences) {
    for (size_t i = 0; i < sequence.rows; ++i) {
      const EaglePass::Row& from = pass.rows[row++];
      token_ids_.push_back(from.token_id);
      positions_.push_back(static_cast<int32_t>(from.position));
      states_.push_back(from.guess < 0
                            ? sequence.cache->Feature(from.position - 1)
                            : guesses_.data() + static_cast<size_t>(from.guess) * hidden);
    }
  }
}

void CpuEagle::Embed(size_t columns) {
  const Linear& embedding = opened_.weights.embedding;
  input_.Resize(token_ids_.size(), columns);
  layer_.ForRows(columns, [&](size_t first, size_t last) {
    tandem::Embed({.table = embedding.weight,
                   .dtype = embedding.dtype,
                   .size = embedding.in_features,
                   .ids = token_ids_.data() + first,
                   .rows = last - first,
                   .out = input_.row(first),
                   .out_stride = input_.stride()});
  });
}

void CpuEagle::Fuse() {
  const size_t hidden = opened_.description.layer.hidden_size;
  Embed(2 * hidden);
  for (size_t row = 0; row < states_.size(); ++row) {
    std::copy_n(states_[row], hidden, input_.row(row) + hidden);
  }
  const MatMulArgs fused = layer_.Product(opened_.weights.fuse, input_, layer_.hidden());
  MatMul({&fused, 1}, pool_);
}

void CpuEagle::BeginWithStates(bool are_guesses) {
  const EagleWeights& weights = opened_.weights;
  const size_t hidden = opened_.description.layer.hidden_size;
  const size_t size = are_guesses ? hidden : weights.fuse.in_features;
  if (!are_guesses) features_.Resize(states_.size(), size);
  for (size_t row = 0; row < states_.size(); ++row) {
    std::copy_n(states_[row], size, are_guesses ? layer_.hidden().row(row) : features_.row(row));
  }
  if (!are_guesses) {
    const MatMulArgs fused = layer_.Product(weights.fuse, features_, layer_.hidden());
    MatMul({&fused, 1}, pool_);
  }
  Embed(2 * hidden);
  Norm(weights.layer.attention_norm, input_, input_, 0);
  Norm(weights.state_norm, layer_.hidden(), input_, hidden);
}

void CpuEagle::Norm(const std::vector<float>& weight, ScratchRows& x, ScratchRows& out,
                    size_t column) {
  layer_.ForRows(2 * weight.size(), [&](size_t first, size_t last) {
    RmsNorm({.x = x.row(first),
             .x_stride = x.stride(),
             .rows = last - first,
             .size = weight.size(),
             .weight = weight.data(),
             .eps = static_cast<float>(opened_.description.layer.norm_eps),
             .out = out.row(first) + column,
             .out_stride = out.stride()});
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
  const bool is_third = opened_.description.is_third;
  layer_.Begin(pass.rows.size());
  ReadRows(pass);
  FindSegments(pass);
  rope_.Reserve(static_cast<size_t>(*std::max_element(positions_.begin(), positions_.end())) + 1);
  if (is_third) {
    BeginWithStates(pass.rows.front().guess >= 0);
  } else {
    Fuse();
  }
  layer_.Qkv(weights.layer, is_third ? input_ : layer_.hidden());
  layer_.Attend(weights.layer, positions_.data(), rope_.data(), segments_);
  layer_.Output(weights.layer);
  layer_.Mlp(weights.layer);
  const size_t hidden = opened_.description.layer.hidden_size;
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
  const size_t hidden = opened_.description.layer.hidden_size;
  ends_.Resize(guesses.size(), hidden);
  logits_.Resize(guesses.size(), output.out_features);
  for (size_t i = 0; i < guesses.size(); ++i) {
    std::copy_n(guesses_.data() + static_cast<size_t>(guesses[i]) * hidden, hidden, ends_.row(i));
  }
  layer_.Shrink(guesses.size());
  if (opened_.description.is_third) Norm(opened_.weights.output_norm, ends_, ends_, 0);
  const MatMulArgs product = layer_.Product(output, ends_, logits_);
  MatMul({&product, 1}, pool_);
  pool_.ParallelFor(static_cast<int64_t>(guesses.size()), [&](int64_t task) {
    const auto i = static_cast<size_t>(task);
    found[i] = LikeliestGuesses({logits_.row(i), output.out_features});
  });
}

}  // namespace tandem
