// The first half of a round: the drafter is asked for drafts, and answers.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_H_

#include <cstdint>

#include "services/router/engine/rounds/round_state.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Asks for a cohort's drafts: gathers the slots that can draft, chooses a draft model for each,
// lets the models' controllers choose how much, plans what fits, and builds the first command.
// Several draft models work one after the other, because they usually share a device. Returns
// false if there is nothing to ask for. PRECOND: no drafter has a batch under way.
bool SendPropose(RoundState& state, uint32_t cohort, double now);

// A drafter answered the batch under way. The answer becomes Proposals, and the next draft model is
// asked. A drafter that broke a rule is dropped, and nothing of its answer counts.
void OnPropose(RoundState& state, const v1::ProposeReply& reply, double now);

// The drafter sent log-prob rows of the batch under way, for the verifier (inline ring).
void ForwardLogProbs(RoundState& state, v1::LogProbChunk* chunk, double now);

// The commands that followed the answer have been sent. The controller learns what the Propose
// took, for the next round.
void LearnProposeCost(RoundState& state);

// A drafter's session is lost. The round goes on without its drafts. `let_go`: nobody wants the
// session any more, and no request is to blame.
void OnDrafterLost(RoundState& state, PeerId peer, bool let_go, double now);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_H_
