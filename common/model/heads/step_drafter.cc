#include "common/model/heads/step_drafter.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

// Nodes of a level that are grown: a quarter of the tree's nodes, and at most as many.
constexpr size_t kWidest = 8;

// Largest number of rows that a tree computes after those of the text: the newest token, and
// `width` nodes of each level but the last one.
constexpr size_t MostRows(uint32_t depth, size_t width) { return 1 + (depth - 1) * width; }

}  // namespace

absl::Status StepDrafter::CatchUp(std::span<const TextRows> texts) {
  TANDEM_RETURN_IF_ERROR(device_->Check());
  size_t left = kMaxCatchUpRows;
  // One text after the other: texts may share pages, and the second one finds the rows there.
  for (const TextRows& text : texts) {
    const size_t begin = NumRows(text);
    const size_t missing = text.token_ids.size() - begin;
    // The rows of a few rounds are computed with the proposal.
    if (missing <= kPageRows || left == 0 || !HasFeatures(text)) continue;
    const size_t rows = std::min(missing, left);
    left -= rows;
    TANDEM_RETURN_IF_ERROR(Fill({{text, 0, begin, begin + rows}}));
  }
  return absl::OkStatus();
}

absl::Status StepDrafter::Propose(std::span<GuessOrder> orders) {
  TANDEM_RETURN_IF_ERROR(device_->Check());
  while (!orders.empty()) {
    std::vector<Growth> growths = BeginGrowth(&orders);
    if (!growths.empty()) TANDEM_RETURN_IF_ERROR(Grow(growths));
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- rows of the text

absl::Status StepDrafter::Run() {
  TANDEM_RETURN_IF_ERROR(device_->Run(pass_));
  progress_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

void StepDrafter::AddRows(const Gap& gap, size_t end) {
  const std::span<const int32_t> token_ids = gap.text.token_ids;
  for (size_t row = gap.begin; row < end; ++row) {
    pass_.rows.push_back({.token_id = row < token_ids.size() ? token_ids[row] : gap.next_token_id,
                          .position = row,
                          .guess = -1,
                          .kept_as = row + 1 == gap.end ? gap.kept_as : -1});
  }
  pass_.sequences.push_back({.cache = gap.text.cache,
                             .length = gap.begin,
                             .first_row = 0,
                             .rows = end - gap.begin,
                             .parents = {}});
}

absl::Status StepDrafter::Fill(std::vector<Gap> gaps) {
  for (Gap& gap : gaps) {
    if (gap.begin > 0) continue;
    TANDEM_RETURN_IF_ERROR(device_->ClearRowZero(*gap.text.cache));
    gap.begin = 1;
  }
  for (size_t next = 0; next < gaps.size();) {
    pass_ = {};
    const size_t first = next;
    size_t end = 0;  // where the pass ends in its last gap
    for (; next < gaps.size() && pass_.rows.size() < StepDevice::kMaxRows; ++next) {
      end = std::min(gaps[next].end, gaps[next].begin + StepDevice::kMaxRows - pass_.rows.size());
      if (gaps[next].begin < end) AddRows(gaps[next], end);
    }
    if (!pass_.rows.empty()) TANDEM_RETURN_IF_ERROR(Run());
    for (size_t i = first; i < next; ++i) {
      Gap& gap = gaps[i];
      gap.begin = i + 1 == next ? end : gap.end;
      if (!traits_.keeps_rows) continue;
      gap.text.cache->SetDrafterRows(std::min(gap.begin, gap.text.token_ids.size()));
    }
    if (gaps[next - 1].begin < gaps[next - 1].end) --next;
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- the tree

std::vector<StepDrafter::Growth> StepDrafter::BeginGrowth(std::span<GuessOrder>* orders) {
  static_assert(MostRows(kMaxDepth, kWidest) <= StepDevice::kMaxGuesses, "an order has room");
  std::vector<Growth> growths;
  num_guesses_ = 0;
  size_t num_rows = 0;  // that keep a guess
  for (; !orders->empty(); *orders = orders->subspan(1)) {
    GuessOrder& order = orders->front();
    const size_t width = std::clamp<size_t>(order.limits.nodes / 4, 1, kWidest);
    const uint32_t depth = std::min(order.limits.depth, kMaxDepth);
    if (depth == 0) continue;
    KvCache& cache = *order.text.cache;
    if (order.text.token_ids.size() - NumRows(order.text) > kPageRows) continue;
    if (!HasFeatures(order.text)) continue;
    const size_t room = cache.RoomFor(MostRows(depth, width));
    if (num_rows + room > StepDevice::kMaxGuesses) break;
    if (room == 0 || !cache.Reserve(room).ok()) continue;
    num_rows += room;
    Growth& growth = growths.emplace_back();
    growth.order = &order;
    growth.width = width;
    growth.depth = static_cast<uint32_t>(1 + (room - 1) / width);
  }
  return growths;
}

absl::Status StepDrafter::Grow(std::vector<Growth>& growths) {
  absl::Status grown = GrowTrees(growths);
  for (Growth& growth : growths) {
    const GuessLimits& limits = growth.order->limits;
    if (grown.ok()) {
      growth.order->tree = growth.tree.Best(limits.nodes == 0 ? growth.depth : limits.nodes);
    }
    // The rows of nodes, and that of the newest token, are given back.
    growth.order->text.cache->TruncateTo(growth.order->text.token_ids.size());
  }
  return grown;
}

absl::Status StepDrafter::GrowTrees(std::vector<Growth>& growths) {
  std::vector<Gap> gaps;
  for (Growth& growth : growths) {
    const TextRows& text = growth.order->text;
    growth.grown.push_back({-1, static_cast<int32_t>(num_guesses_++)});
    gaps.push_back({text, growth.order->next_token_id, NumRows(text), text.token_ids.size() + 1,
                    growth.grown.front().guess});
  }
  TANDEM_RETURN_IF_ERROR(Fill(std::move(gaps)));
  TANDEM_RETURN_IF_ERROR(LookAhead(growths));
  for (uint32_t level = 0;; ++level) {
    TANDEM_ASSIGN_OR_RETURN(const bool has_grown, GrowLevel(growths, level));
    if (!has_grown) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(LookAhead(growths));
  }
}

absl::Status StepDrafter::LookAhead(std::vector<Growth>& growths) {
  std::vector<int32_t> looks;
  int32_t count = kGuessesOfHead;
  for (const Growth& growth : growths) {
    count = std::max(count, GuessesOf(*growth.order));
    for (size_t i = growth.num_looked_at; i < growth.grown.size(); ++i) {
      looks.push_back(growth.grown[i].guess);
    }
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::vector<Guess>> guesses,
                          device_->LookAhead(looks, count));
  progress_.fetch_add(1, std::memory_order_relaxed);
  size_t next = 0;
  for (Growth& growth : growths) {
    const GuessOrder& order = *growth.order;
    for (; growth.num_looked_at < growth.grown.size(); ++growth.num_looked_at) {
      const int32_t node = growth.grown[growth.num_looked_at].node;
      std::vector<Guess>& found = guesses[next++];
      KeepFirst(GuessesOf(order), found);
      for (Guess& guess : found) guess = OfTarget(traits_.token_map, guess);
      Sharpen(found, order.temperature);
      if (order.transforms != nullptr) {
        order.transforms->Apply(growth.tree.PathTo(node), SharpnessAt(order.temperature), found);
      }
      if (order.limits.nodes == 0) KeepFirst(1, found);
      growth.tree.Add(node, found);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StepDrafter::GrowLevel(std::vector<Growth>& growths, uint32_t level) {
  pass_ = {};
  bool has_grown = false;
  for (Growth& growth : growths) {
    if (level + 1 >= growth.depth) continue;
    const std::vector<int32_t> likeliest =
        growth.tree.Likeliest(level, growth.width, traits_.step_cost);
    if (likeliest.empty()) continue;
    has_grown = true;
    if (pass_.rows.size() + likeliest.size() > StepDevice::kMaxRows) {
      TANDEM_RETURN_IF_ERROR(Run());
      pass_ = {};
    }
    const size_t length = growth.order->text.token_ids.size();
    const size_t first_row = growth.parents.size();
    for (const int32_t index : likeliest) {
      const LevelTree::Node& node = growth.tree.node(index);
      const auto parent = std::find_if(growth.grown.begin(), growth.grown.end(),
                                       [&](const Grown& g) { return g.node == node.parent; });
      growth.parents.push_back(static_cast<int32_t>(parent - growth.grown.begin()) - 1);
      const auto kept_as = static_cast<int32_t>(num_guesses_++);
      pass_.rows.push_back({.token_id = node.token_id,
                            .position = length + 1 + level,
                            .guess = parent->guess,
                            .kept_as = kept_as});
      growth.grown.push_back({index, kept_as});
    }
    pass_.sequences.push_back({.cache = growth.order->text.cache,
                               .length = length + 1,
                               .first_row = first_row,
                               .rows = likeliest.size(),
                               .parents = growth.parents});
  }
  if (has_grown) TANDEM_RETURN_IF_ERROR(Run());
  return has_grown;
}

}  // namespace tandem
