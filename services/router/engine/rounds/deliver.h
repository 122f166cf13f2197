// The results of a round leave the pod: tokens to the client or the audit, counts to the observer.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_DELIVER_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_DELIVER_H_

#include <cstdint>

#include "services/router/engine/rounds/round_state.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Commits the result (Commit), and writes the tokens to the client. A request that ended leaves its
// slot. PRECOND: as for Commit.
void CommitAndDeliver(RoundState& state, const VerifyBatch::Item& item, v1::VerifyResult& result,
                      double now);

// Writes what the client gets after a part of its prompt: log-probabilities, and the end of a
// request that wants no output, which leaves its slot.
void DeliverPrompt(RoundState& state, const VerifyBatch::Item& item, double now);

// Compares the token that a replay drew with the token that the client got. A replay that ended, or
// that differs, leaves its slot.
void CompareReplay(RoundState& state, uint32_t slot_id, int32_t token_id);

// Logs what the audit found since the last call, if it found anything.
void ReportAlarm(RoundState& state);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_DELIVER_H_
