#include "services/router/drafting/lookup/suffix_lookup.h"

#include <utility>

#include "common/continuation_tree.h"

namespace tandem {
namespace {

// Places whose continuations a tree merges.
constexpr size_t kMostPlaces = 4;

}  // namespace

size_t SuffixLookup::Advance(std::span<const int32_t> tokens, size_t most) {
  const size_t begin = index_.size();
  index_.Extend(tokens, most);
  for (size_t at = begin; at < index_.size(); ++at) {
    if (following_.length == 0) break;
    if (tokens[following_.next] != tokens[at]) {
      following_ = {};
    } else {
      ++following_.next;
      ++following_.length;
    }
  }
  if (index_.size() < tokens.size()) {
    following_ = {};  // the end of the text is still to come
    return index_.size() - begin;
  }
  if (index_.size() == begin) return 0;
  const TextMatch found = index_.Longest(tokens, tokens, tokens.size());
  if (found.length > following_.length) following_ = found;
  return index_.size() - begin;
}

LookupDraft SuffixLookup::Find(std::span<const int32_t> tokens, const LookupLimits& limits) const {
  LookupDraft draft;
  draft.drafter = Drafter::kSuffix;
  if (index_.size() != tokens.size() || following_.length == 0) return draft;
  draft.match_length = following_.length;
  std::vector<Continuation> texts;
  const auto add = [&](const TextMatch& place) {
    // What followed a longer match counts more.
    Continuation& text = texts.emplace_back(Continuation{{}, place.length});
    for (size_t at = place.next; text.token_ids.size() < limits.depth; ++at) {
      text.token_ids.push_back(at < tokens.size() ? tokens[at]
                                                  : text.token_ids[at - tokens.size()]);
    }
  };
  add(following_);
  if (limits.nodes == 0) {
    draft.token_ids = std::move(texts.front().token_ids);
    return draft;
  }
  for (const TextMatch& other : index_.Matches(tokens, tokens, tokens.size(), kMostPlaces)) {
    if (other.next != following_.next) add(other);
  }
  ContinuationTree tree = MergeContinuations(
      texts, {.max_depth = limits.depth, .max_nodes = size_t{limits.depth} + limits.nodes});
  draft.token_ids = std::move(tree.token_ids);
  draft.parents = std::move(tree.parents);
  draft.Limit(limits);
  return draft;
}

}  // namespace tandem
