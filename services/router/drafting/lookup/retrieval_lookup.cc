#include "services/router/drafting/lookup/retrieval_lookup.h"

#include <algorithm>
#include <utility>

namespace tandem {

bool RetrievalLookup::WantsSearch(std::span<const int32_t> tokens) const {
  if (tokens.size() == searched_length_) return false;
  const uint32_t doublings = failures_ - std::min(failures_, kFreeFailures);
  const uint32_t gap = doublings == 0 ? 0 : std::min(1U << std::min(doublings, 8U), kLongestGap);
  return rounds_since_ >= gap && Find(tokens, kFewTokens).token_ids.size() < kFewTokens;
}

void RetrievalLookup::OnSearch(size_t length) {
  // What the last search found was never used.
  if (!is_judged_) ++failures_;
  is_judged_ = false;
  searched_length_ = length;
  rounds_since_ = 0;
}

void RetrievalLookup::OnFound(size_t length, LookupDraft found) {
  if (found.token_ids.empty()) {  // the former copy may go on
    ++failures_;
    is_judged_ = true;
    return;
  }
  found_length_ = length;
  found_ = std::move(found);
}

LookupDraft RetrievalLookup::Find(std::span<const int32_t> tokens,
                                  const LookupLimits& limits) const {
  LookupDraft draft;
  draft.drafter = Drafter::kRetrieval;
  const size_t since = tokens.size() - std::min(tokens.size(), found_length_);
  if (tokens.size() < found_length_ || since >= found_.token_ids.size()) return draft;
  draft = Descend(found_, tokens.last(since));
  draft.Limit(limits);
  return draft;
}

void RetrievalLookup::OnRound(uint32_t num_drafted, uint32_t num_accepted) {
  ++rounds_since_;
  if (num_drafted == 0) return;
  is_judged_ = true;
  failures_ = num_accepted > 0 ? 0 : failures_ + 1;
}

}  // namespace tandem
