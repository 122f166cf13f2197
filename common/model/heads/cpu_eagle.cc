#include "common/model/heads/cpu_eagle.h"

#include <algorithm>
#include <utility>

#include "common/model/heads/heads_weights.h"
#include "common/status.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"

namespace tandem {
namespace {

constexpr size_t kMaxPassRows = 512;
constexpr size_t kMaxLooks = 64;  // rows of logits at once
// Nodes of a level that are grown: a quarter of the tree's nodes, and at most as many.
constexpr size_t kWidest = 8;

uint64_t BytesOf(const Linear& linear) {
  return uint64_t{linear.out_features} * linear.in_features * SizeOf(linear.dtype);
}

uint64_t BytesOf(const LayerWeights& layer) {
  uint64_t bytes = 0;
  for (const Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                               &layer.gate, &layer.up, &layer.down}) {
    bytes += BytesOf(*linear);
  }
  return bytes;
}

// Returns the cost of a step, in passes of the target: both read their weights once.
double StepCost(const EagleWeights& eagle, const ModelWeights& target) {
  uint64_t pass = BytesOf(target.output);
  for (const LayerWeights& layer : target.layers) pass += BytesOf(layer);
  const uint64_t step = BytesOf(eagle.fuse) + BytesOf(eagle.layer) + BytesOf(eagle.output);
  return static_cast<double>(step) / static_cast<double>(pass);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuEagle>> CpuEagle::Load(const std::filesystem::path& folder,
                                                         const ModelDescription& target,
                                                         const ModelWeights& target_weights,
                                                         ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription eagle, EagleWeights::Describe(folder, target));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, OpenHeads(folder));
  eagle.attention.qkv_bias = checkpoint->Has("layers.0.self_attn.q_proj.bias");
  TANDEM_ASSIGN_OR_RETURN(EagleWeights weights,
                          EagleWeights::Load(*checkpoint, eagle, target_weights));
  checkpoint->WillNeed();
  const double step_cost = StepCost(weights, target_weights);
  return std::unique_ptr<CpuEagle>(new CpuEagle(std::move(checkpoint), std::move(eagle),
                                                std::move(weights), target.num_layers, step_cost,
                                                pool));
}

CpuEagle::CpuEagle(std::unique_ptr<Checkpoint> checkpoint, ModelDescription eagle,
                   EagleWeights weights, size_t layer_index, double step_cost, ThreadPool* pool)
    : checkpoint_(std::move(checkpoint)),
      eagle_(std::move(eagle)),
      weights_(std::move(weights)),
      layer_index_(layer_index),
      step_cost_(step_cost),
      pool_(*pool),
      rope_(eagle_),
      layer_(&eagle_, pool) {}

absl::Status CpuEagle::CatchUp(std::span<const TextRows> texts) {
  TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
  size_t left = kMaxCatchUpRows;
  // One text after the other: texts may share pages, and the second one finds the rows there.
  for (const TextRows& text : texts) {
    const size_t begin = text.cache->NumDrafterRows();
    const size_t missing = text.token_ids.size() - begin;
    // The rows of a few rounds are computed with the proposal.
    if (missing <= kPageRows || left == 0) continue;
    const size_t rows = std::min(missing, left);
    left -= rows;
    Fill({{text, 0, begin, begin + rows}});
  }
  return absl::OkStatus();
}

absl::Status CpuEagle::Propose(std::span<GuessOrder> orders) {
  TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
  std::vector<Growth> growths = BeginGrowth(orders);
  if (growths.empty()) return absl::OkStatus();
  std::vector<Gap> gaps;
  for (Growth& growth : growths) {
    const TextRows& text = growth.order->text;
    gaps.push_back({text, growth.order->next_token_id, text.cache->NumDrafterRows(),
                    text.token_ids.size() + 1, &growth.grown.front().feature});
  }
  Fill(std::move(gaps));
  LookAhead(growths);
  for (uint32_t level = 0; Grow(growths, level); ++level) LookAhead(growths);
  for (Growth& growth : growths) {
    const GuessLimits& limits = growth.order->limits;
    growth.order->tree = growth.tree.Best(limits.nodes == 0 ? growth.depth : limits.nodes);
    // The rows of nodes, and that of the newest token, are given back.
    growth.order->text.cache->TruncateTo(growth.order->text.token_ids.size());
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- a pass

void CpuEagle::Begin() {
  token_ids_.clear();
  features_.clear();
  positions_.clear();
  segments_.clear();
}

void CpuEagle::AddRow(int32_t token_id, const float* feature, size_t position) {
  token_ids_.push_back(token_id);
  features_.push_back(feature);
  positions_.push_back(static_cast<int32_t>(position));
}

void CpuEagle::Run() {
  const size_t hidden = eagle_.hidden_size;
  const size_t rows = token_ids_.size();
  layer_.Begin(rows);
  input_.Resize(rows, 2 * hidden);
  layer_.ForRows(2 * hidden, [&](size_t first, size_t last) {
    Embed({.table = weights_.embedding.weight,
           .dtype = weights_.embedding.dtype,
           .size = hidden,
           .ids = token_ids_.data() + first,
           .rows = last - first,
           .out = input_.row(first),
           .out_stride = input_.stride()});
    for (size_t row = first; row < last; ++row) {
      std::copy_n(features_[row], hidden, input_.row(row) + hidden);
    }
  });
  rope_.Reserve(static_cast<size_t>(*std::max_element(positions_.begin(), positions_.end())) + 1);
  const MatMulArgs fused = layer_.Product(weights_.fuse, input_, layer_.hidden());
  MatMul({&fused, 1}, pool_);
  layer_.Qkv(weights_.layer, layer_.hidden());
  layer_.Attend(weights_.layer, positions_.data(), rope_.data(), segments_);
  layer_.Output(weights_.layer);
  layer_.Mlp(weights_.layer);
  progress_.fetch_add(1, std::memory_order_relaxed);
}

// ---------------------------------------------------------------- rows of the text

void CpuEagle::ClearRowZero(KvCache& cache) {
  const std::vector<float> zeros(eagle_.attention.kv_floats());
  StoreKv({.kv = cache.Layer(layer_index_),
           .first_row = 0,
           .rows = 1,
           .keys = zeros.data(),
           .keys_stride = zeros.size(),
           .values = zeros.data(),
           .values_stride = zeros.size()});
}

void CpuEagle::AddRows(const Gap& gap, size_t end) {
  const std::span<const int32_t> token_ids = gap.text.token_ids;
  for (size_t row = gap.begin; row < end; ++row) {
    AddRow(row < token_ids.size() ? token_ids[row] : gap.next_token_id,
           gap.text.cache->Feature(row - 1), row);
  }
  AttentionArgs& segment = segments_.emplace_back();
  segment.kv = gap.text.cache->Layer(layer_index_);
  segment.hidden_rows = 1;
  segment.cached_len = gap.begin;
  segment.rows = end - gap.begin;
}

void CpuEagle::Fill(std::vector<Gap> gaps) {
  for (Gap& gap : gaps) {
    if (gap.begin > 0) continue;
    ClearRowZero(*gap.text.cache);
    gap.begin = 1;
  }
  for (size_t next = 0; next < gaps.size();) {
    Begin();
    const size_t first = next;
    size_t end = 0;  // where the pass ends in its last gap
    for (; next < gaps.size() && token_ids_.size() < kMaxPassRows; ++next) {
      end = std::min(gaps[next].end, gaps[next].begin + kMaxPassRows - token_ids_.size());
      if (gaps[next].begin < end) AddRows(gaps[next], end);
    }
    if (!token_ids_.empty()) Run();
    size_t row = 0;
    for (size_t i = first; i < next; ++i) {
      Gap& gap = gaps[i];
      const size_t filled = i + 1 == next ? end : gap.end;
      row += filled - gap.begin;
      gap.begin = filled;
      gap.text.cache->SetDrafterRows(std::min(filled, gap.text.token_ids.size()));
      if (gap.last != nullptr && filled == gap.end) {
        const float* feature = layer_.hidden().row(row - 1);
        gap.last->assign(feature, feature + eagle_.hidden_size);
      }
    }
    if (gaps[next - 1].begin < gaps[next - 1].end) --next;
  }
}

// ---------------------------------------------------------------- the tree

std::vector<CpuEagle::Growth> CpuEagle::BeginGrowth(std::span<GuessOrder> orders) {
  std::vector<Growth> growths;
  for (GuessOrder& order : orders) {
    const size_t width = std::clamp<size_t>(order.limits.nodes / 4, 1, kWidest);
    const uint32_t depth = std::min(order.limits.depth, kMaxDepth);
    if (depth == 0) continue;
    KvCache& cache = *order.text.cache;
    if (order.text.token_ids.size() - cache.NumDrafterRows() > kPageRows) continue;
    const size_t room = cache.RoomFor(1 + (depth - 1) * width);
    if (room == 0 || !cache.Reserve(room).ok()) continue;
    Growth& growth = growths.emplace_back();
    growth.order = &order;
    growth.width = width;
    growth.depth = static_cast<uint32_t>(1 + (room - 1) / width);
    growth.grown.push_back({-1, {}});
  }
  return growths;
}

void CpuEagle::LookAhead(std::vector<Growth>& growths) {
  std::vector<std::pair<Growth*, size_t>> looks;
  for (Growth& growth : growths) {
    for (; growth.num_looked_at < growth.grown.size(); ++growth.num_looked_at) {
      looks.emplace_back(&growth, growth.num_looked_at);
    }
  }
  std::span<const std::pair<Growth*, size_t>> left = looks;
  while (!left.empty()) {
    const size_t count = std::min(left.size(), kMaxLooks);
    LookAhead(left.first(count));
    left = left.subspan(count);
  }
}

void CpuEagle::LookAhead(std::span<const std::pair<Growth*, size_t>> looks) {
  ends_.Resize(looks.size(), eagle_.hidden_size);
  logits_.Resize(looks.size(), weights_.output.out_features);
  for (size_t i = 0; i < looks.size(); ++i) {
    const std::vector<float>& feature = looks[i].first->grown[looks[i].second].feature;
    std::copy(feature.begin(), feature.end(), ends_.row(i));
  }
  layer_.Shrink(looks.size());
  const MatMulArgs product = layer_.Product(weights_.output, ends_, logits_);
  MatMul({&product, 1}, pool_);
  std::vector<std::vector<Guess>> guesses(looks.size());
  pool_.ParallelFor(static_cast<int64_t>(looks.size()), [&](int64_t task) {
    const auto i = static_cast<size_t>(task);
    guesses[i] = LikeliestGuesses({logits_.row(i), weights_.output.out_features});
  });
  for (size_t i = 0; i < looks.size(); ++i) {
    Growth& growth = *looks[i].first;
    const bool is_chain = growth.order->limits.nodes == 0;
    const size_t count = std::min<size_t>(guesses[i].size(), is_chain ? 1 : kGuessesOfHead);
    growth.tree.Add(growth.grown[looks[i].second].node, std::span(guesses[i]).first(count));
  }
  progress_.fetch_add(1, std::memory_order_relaxed);
}

bool CpuEagle::Grow(std::vector<Growth>& growths, uint32_t level) {
  Begin();
  std::vector<std::pair<Growth*, int32_t>> nodes;  // one for each row of the pass
  for (Growth& growth : growths) {
    if (level + 1 >= growth.depth) continue;
    const std::vector<int32_t> likeliest = growth.tree.Likeliest(level, growth.width, step_cost_);
    if (likeliest.empty()) continue;
    const size_t length = growth.order->text.token_ids.size();
    const size_t first_row = growth.parents.size();
    for (const int32_t index : likeliest) {
      const LevelTree::Node& node = growth.tree.node(index);
      const auto parent = std::find_if(growth.grown.begin(), growth.grown.end(),
                                       [&](const Grown& g) { return g.node == node.parent; });
      AddRow(node.token_id, parent->feature.data(), length + 1 + level);
      growth.parents.push_back(static_cast<int32_t>(parent - growth.grown.begin()) - 1);
      nodes.emplace_back(&growth, index);
    }
    AttentionArgs& segment = segments_.emplace_back();
    segment.kv = growth.order->text.cache->Layer(layer_index_);
    segment.hidden_rows = 1;
    segment.cached_len = length + 1;
    segment.first_row = first_row;
    segment.rows = likeliest.size();
    segment.parents = growth.parents;
  }
  if (nodes.empty()) return false;
  Run();
  for (size_t row = 0; row < nodes.size(); ++row) {
    const float* feature = layer_.hidden().row(row);
    nodes[row].first->grown.push_back(
        {nodes[row].second, std::vector<float>(feature, feature + eagle_.hidden_size)});
  }
  return true;
}

}  // namespace tandem
