#include "services/router/drafting/lookup/lookup_draft.h"

#include <algorithm>
#include <numeric>

#include "proto/draft_tree.h"

namespace tandem {
namespace {

// Returns the index of the first token that may follow a node. 0: any may follow the beginning.
size_t IndexAfter(int32_t node) { return static_cast<size_t>(int64_t{node} + 1); }

// Makes a draft of some tokens of another one, in this order. Each one's parent comes before it, or
// is not among them and counts as the beginning.
LookupDraft Pick(const LookupDraft& draft, std::span<const size_t> tokens) {
  LookupDraft picked;
  picked.drafter = draft.drafter;
  picked.match_length = draft.match_length;
  picked.token_ids.reserve(tokens.size());
  picked.parents.reserve(tokens.size());
  picked.chances.reserve(draft.chances.empty() ? 0 : tokens.size());
  std::vector<int32_t> new_index(draft.token_ids.size(), -1);
  for (const size_t token : tokens) {
    const int32_t parent = draft.ParentOf(token);
    new_index[token] = static_cast<int32_t>(picked.token_ids.size());
    picked.token_ids.push_back(draft.token_ids[token]);
    picked.parents.push_back(parent < 0 ? -1 : new_index[static_cast<size_t>(parent)]);
    if (!draft.chances.empty()) picked.chances.push_back(draft.chances[token]);
    if (!draft.beliefs.empty()) picked.beliefs.push_back(draft.beliefs[token]);
  }
  if (IsChain(picked.parents)) picked.parents.clear();
  return picked;
}

}  // namespace

void LookupDraft::Keep(size_t num_tokens) {
  std::vector<size_t> kept(std::min(num_tokens, token_ids.size()));
  std::iota(kept.begin(), kept.end(), size_t{0});
  *this = Pick(*this, kept);
}

void LookupDraft::KeepChain() {
  if (parents.empty()) return;
  std::vector<size_t> kept;
  int32_t last = -1;
  for (size_t token = 0; token < token_ids.size(); ++token) {
    if (parents[token] != last) continue;
    kept.push_back(token);
    last = static_cast<int32_t>(token);
  }
  *this = Pick(*this, kept);
}

void LookupDraft::PutPathsTogether() {
  if (parents.empty()) return;
  std::vector<size_t> order;
  // The first child of a token comes after it, and so on down. Then come the siblings.
  const auto visit = [&](const auto& self, int32_t node) -> void {
    for (size_t i = IndexAfter(node); i < token_ids.size(); ++i) {
      if (parents[i] != node) continue;
      order.push_back(i);
      self(self, static_cast<int32_t>(i));
    }
  };
  visit(visit, -1);
  *this = Pick(*this, order);
}

void LookupDraft::Limit(const LookupLimits& limits) {
  if (limits.nodes == 0) KeepChain();
  if (parents.empty()) return Keep(limits.depth);
  std::vector<size_t> kept;
  std::vector<uint32_t> depths(token_ids.size());
  for (size_t i = 0; i < token_ids.size(); ++i) {
    depths[i] = parents[i] < 0 ? 1 : depths[static_cast<size_t>(parents[i])] + 1;
    if (depths[i] <= limits.depth) kept.push_back(i);
  }
  *this = Pick(*this, kept);
}

LookupDraft Descend(const LookupDraft& draft, std::span<const int32_t> token_ids) {
  int32_t node = -1;
  for (const int32_t token_id : token_ids) {
    int32_t child = -1;
    for (size_t i = IndexAfter(node); i < draft.token_ids.size() && child < 0; ++i) {
      if (draft.ParentOf(i) == node && draft.token_ids[i] == token_id) {
        child = static_cast<int32_t>(i);
      }
    }
    if (child < 0) return Pick(draft, {});
    node = child;
  }
  std::vector<bool> is_below(draft.token_ids.size());
  std::vector<size_t> below;
  for (size_t i = IndexAfter(node); i < draft.token_ids.size(); ++i) {
    const int32_t parent = draft.ParentOf(i);
    is_below[i] = parent == node || (parent >= 0 && is_below[static_cast<size_t>(parent)]);
    if (is_below[i]) below.push_back(i);
  }
  LookupDraft rest = Pick(draft, below);
  rest.match_length += static_cast<uint32_t>(token_ids.size());
  return rest;
}

namespace {

// `conditional(token, depth, rank)` is P(the token is accepted | its parent was).
template <typename Conditional>
void Sort(const Conditional& conditional, LookupDraft* draft) {
  const size_t size = draft->token_ids.size();
  draft->chances.assign(size, 0);
  std::vector<uint32_t> depths(size);
  // By parent: the number of its children so far, and the chance of the last one given the parent.
  std::vector<uint32_t> num_children(size + 1);
  std::vector<double> last_child(size + 1, 1);
  for (size_t i = 0; i < size; ++i) {
    const int32_t parent = draft->ParentOf(i);
    const auto place = IndexAfter(parent);
    const double reached = parent < 0 ? 1 : draft->chances[static_cast<size_t>(parent)];
    depths[i] = parent < 0 ? 0 : depths[static_cast<size_t>(parent)] + 1;
    const uint32_t rank = num_children[place]++;
    // Siblings keep their order. A rank that was measured is then the rank that it is used for.
    last_child[place] = std::min(last_child[place], conditional(i, depths[i], rank));
    draft->chances[i] = reached * last_child[place];
  }
  if (draft->parents.empty()) return;
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return draft->chances[a] > draft->chances[b]; });
  *draft = Pick(*draft, order);
}

}  // namespace

void SortByChance(const AcceptanceEstimate& acceptance, LookupDraft* draft) {
  Sort(
      [&](size_t, uint32_t depth, uint32_t rank) {
        return rank == 0 ? acceptance.Conditional(depth) : acceptance.OfSibling(rank);
      },
      draft);
}

void SortByBelief(const ChanceCalibration& calibration, LookupDraft* draft) {
  const std::vector<float> beliefs = draft->beliefs;
  Sort([&](size_t token, uint32_t, uint32_t) { return calibration.Corrected(beliefs[token]); },
       draft);
}

}  // namespace tandem
