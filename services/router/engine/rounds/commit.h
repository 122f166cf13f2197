// The end of a round: accepted and sampled tokens become a request's output.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_COMMIT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_COMMIT_H_

#include <cstdint>

#include "services/router/engine/rounds/round_state.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Appends the accepted tokens of the proposal and the token that the verifier drew, as far as the
// request goes. The client gets them, and a request that ended leaves its slot. PRECOND: the result
// was checked (CheckVerifyResult), and the item's sequence is in its slot.
void Commit(RoundState& state, const VerifyBatch::Item& item, v1::VerifyResult& result, double now);

// Compares the token that a replay drew with the token that the client got. A replay that ended, or
// that differs, leaves its slot.
void CompareReplay(RoundState& state, uint32_t slot_id, int32_t token_id);

// Logs what the audit found since the last call, if it found anything.
void ReportAlarm(RoundState& state);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_COMMIT_H_
