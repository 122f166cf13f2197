// Drafts that the router finds itself, in the text of a request, before a round (drafting/lookup).
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_LOOKUP_ROUND_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_LOOKUP_ROUND_H_

#include <cstddef>
#include <cstdint>

#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/engine/rounds/proposal.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

// Committed tokens that the lookups of all slots take over in one event, so that a long prompt does
// not hold up the round of other slots: about a tenth of a millisecond.
inline constexpr size_t kLookupTokensPerEvent = 8192;

// Lets the lookups of all slots of a cohort take over new committed tokens: first those that lack
// few, and then long prompts and predictions, in pieces. Returns whether any slot uses lookups.
bool FeedLookups(uint32_t cohort, Slots* slots);

// Returns the draft of the sequence's lookups, or one without tokens. It depends on committed
// tokens alone.
LookupDraft FindLookup(const Sequence& sequence, uint32_t max_tokens);

// Makes the first `length` tokens of the draft a proposal.
Proposal ProposeFound(const Sequence& sequence, LookupDraft draft, uint32_t length);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_LOOKUP_ROUND_H_
