#include "services/router/drafting/lookup/suffix_lookup.h"

#include <algorithm>

namespace tandem {

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

LookupDraft SuffixLookup::Find(std::span<const int32_t> tokens, uint32_t max_tokens) const {
  LookupDraft draft;
  draft.drafter = Drafter::kSuffix;
  if (index_.size() != tokens.size() || following_.length == 0) return draft;
  draft.match_length = following_.length;
  for (size_t at = following_.next; draft.token_ids.size() < max_tokens; ++at) {
    draft.token_ids.push_back(at < tokens.size() ? tokens[at]
                                                 : draft.token_ids[at - tokens.size()]);
  }
  return draft;
}

}  // namespace tandem
