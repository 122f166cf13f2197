// Drafts that the router finds itself, in the text of a request, before a round (drafting/lookup).
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_LOOKUP_ROUND_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_LOOKUP_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/engine/rounds/proposal.h"
#include "services/router/engine/rounds/round_state.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

// Committed tokens that the lookups of all slots take over in one event, so that a long prompt does
// not hold up the round of other slots: about a tenth of a millisecond.
inline constexpr size_t kLookupTokensPerEvent = 8192;

// Lets the lookups of all slots of a cohort take over new committed tokens: first those that lack
// few, and then long prompts and predictions, in pieces. Returns whether any slot uses lookups.
bool FeedLookups(uint32_t cohort, Slots* slots);

// What a search of the corpus found for one slot.
struct CorpusAnswer {
  uint32_t slot;
  uint64_t serial;
  size_t length;
  LookupDraft draft;
};

// Has the corpus searched for the slots of an idle cohort that want it. Returns true if the round
// should wait for the answer: until cohort.search_until, a small part of a round.
bool SendSearch(RoundState& state, uint32_t cohort, double now);
// An answer to an older search of the cohort serves too: it says which text it continues.
void TakeAnswers(RoundState& state, const SearchCorpus& search, std::vector<CorpusAnswer> answers,
                 double now);
// Whether a searching cohort still waits for its answer.
inline bool AwaitsSearch(const Cohort& cohort, double now) {
  return cohort.search != 0 && now < cohort.search_until;
}

// Makes the first `length` tokens of the draft a proposal.
Proposal ProposeFound(const Sequence& sequence, LookupDraft draft, uint32_t length);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_LOOKUP_ROUND_H_
