#include "services/router/engine/rounds/lookup_round.h"

#include <algorithm>
#include <utility>

namespace tandem {

bool FeedLookups(uint32_t cohort, Slots* slots) {
  constexpr size_t kFewTokens = 64;
  size_t left = kLookupTokensPerEvent;
  bool any = false;
  for (const bool few : {true, false}) {
    for (uint32_t id = 0; id < slots->size(); ++id) {
      const RouterSlot& slot = (*slots)[id];
      if (slot.sequence == nullptr || slot.cohort != cohort || slot.sequence->lookups == nullptr) {
        continue;
      }
      any = true;
      RequestLookups& lookups = *slot.sequence->lookups;
      const auto tokens = slot.sequence->tokens();
      if ((lookups.num_behind(tokens) <= kFewTokens) == few) left -= lookups.Advance(tokens, left);
    }
  }
  return any;
}

LookupDraft FindLookup(const Sequence& sequence, uint32_t max_tokens) {
  if (sequence.lookups == nullptr || max_tokens == 0) return {};
  return sequence.lookups->Find(sequence.tokens(), max_tokens);
}

Proposal ProposeFound(const Sequence& sequence, LookupDraft draft, uint32_t length) {
  Proposal proposal;
  proposal.serial = sequence.serial;
  proposal.drafter = draft.drafter;
  proposal.match_length = draft.match_length;
  proposal.token_ids = std::move(draft.token_ids);
  proposal.token_ids.resize(std::min<size_t>(proposal.token_ids.size(), length));
  return proposal;
}

}  // namespace tandem
