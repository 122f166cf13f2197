// A slot that may draft in the next round, and its draft length.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_CANDIDATE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_CANDIDATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"

namespace tandem {

// A slot whose verifier lacks only the pending token.
struct DraftCandidate {
  const AcceptanceEstimate* acceptance = nullptr;
  uint64_t serial = 0;            // number of the sequence, as ObserveDraft names it
  uint32_t limit = 0;             // room for draft tokens (LimitDraftLength)
  std::optional<uint32_t> fixed;  // length that the request asks for; `limit` still applies
  uint32_t context = 0;           // tokens of the sequence
  uint32_t drafter_lack = 1;      // committed tokens that the drafter has no rows for, >= 1
  bool has_draft = false;         // the draft is at hand: it takes no pass of the drafter
  // [limit] of the draft at hand, see LookupDraft. Valid until the draft becomes a proposal.
  std::span<const double> chances;
  // Tokens that the request usually commits in the time of a plain round at such a place (Pace).
  // 0: not known, or of no interest.
  double pace = 0;
  uint32_t remaining_tokens = 1;  // tokens that the request may still emit
  uint32_t max_nodes = 0;         // tokens of a tree that the draft model may draw; 0: only a chain
  uint32_t length = 0;            // output: draft tokens in the next round
  // Output: siblings that the draft model draws besides, as in ProposeItem.
  std::vector<uint32_t> num_siblings = {};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_CANDIDATE_H_
