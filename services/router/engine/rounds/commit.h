// The end of a round: accepted and sampled tokens become a request's output.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_COMMIT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_COMMIT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/rounds/batches.h"
#include "services/router/engine/slots/slots.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Who made the tokens.
struct CommitTerms {
  const EngineOptions* options;
  const v1::AttachReply* verifier;  // not null
};

// What a commit gave. The slots have it already; clients and counts do not.
struct Committed {
  v1::GenerateResponse response;              // has a completion if the request ended
  std::optional<double> first_token_seconds;  // since the request arrived; none: not its first
  CommittedRound round;
  std::vector<JudgedPosition> judged;  // positions of the draft that were tested
  std::optional<Fallback> fallback;    // why nothing was drafted; none: a draft was judged
  uint32_t num_rejected = 0;           // draft tokens; the verifier rolled their rows back
};

// Appends the accepted tokens of the proposal and the token that the verifier drew, as far as the
// request goes. A request that ended stays in its slot. PRECOND: the result was checked
// (CheckVerifyResult), and the item's sequence is in its slot.
Committed Commit(const CommitTerms& terms, const VerifyBatch::Item& item, v1::VerifyResult& result,
                 double now, Slots* slots);

// Adds the log-probabilities of prompt tokens to the request's next response. PRECOND: as for
// Commit.
void KeepScores(const VerifyBatch::Item& item, v1::VerifyResult& result, Sequence* sequence);
// Returns what a request has for its client after a part of its prompt was computed. The response
// has a completion if the request wants no output, and its prompt is computed.
v1::GenerateResponse CommitPrompt(const VerifyBatch::Item& item, double now, Sequence* sequence);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_COMMIT_H_
