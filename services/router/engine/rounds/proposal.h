// A draft: the tokens that some drafter proposes for one slot, on their way to the verifier.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSAL_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/router/drafting/drafter_set.h"
#include "services/router/drafting/self/self_proposals.h"
#include "services/router/engine/engine_command.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// A value, whichever drafter made it. The draft model's proposals come with an entry of the
// log-prob ring and with the session whose caches hold their rows. Proposals that were found have
// neither.
struct Proposal {
  Drafter drafter = Drafter::kModel;
  uint64_t serial = 0;             // life of the slot that it was made for
  std::vector<int32_t> token_ids;  // empty: there is no draft
  // As in VerifyItem; empty: a chain. Once the proposal is sent, SentVerify has them.
  std::vector<int32_t> parents;
  std::optional<v1::RingReference> ring;  // where the draft's log-probs are; none: not needed
  uint32_t match_length = 0;              // what LookupDraft says of a lookup
  std::vector<float> beliefs;             // what LookupDraft says of a proposal of the verifier
  uint64_t heads_version = 0;             // RequestLookups::self_version when the draft was found
  // Found drafts: what the best other draft was worth, in tokens of plain decoding. None: the other
  // one is worth more, and this one is tried.
  std::optional<double> rival_worth;
  double pace = 1;  // tokens that the request usually commits in the time of a plain round (Pace)
  SessionId session = 0;       // session of the drafter that holds rows of it; 0: no drafter does
  PeerId peer = kDrafterPeer;  // that drafter
  std::string model = {};      // name of its model
};

// The place at which a verifier that judges the proposal may be asked for another one.
inline AskingPlace PlaceOf(const Proposal& proposal) {
  const bool is_match = !proposal.token_ids.empty() && FindsMatches(proposal.drafter);
  return is_match ? AskingPlace::kAfterMatch : AskingPlace::kElsewhere;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSAL_H_
