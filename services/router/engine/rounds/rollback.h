// The rollbacks of slots: when a drafter is told to drop rows of draft tokens, and how (ADR 0021).
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_ROLLBACK_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_ROLLBACK_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "services/router/engine/rounds/round_state.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Slots of which the drafter holds rows of draft tokens that nobody will judge any more.
std::vector<uint32_t> DueRollbacks(const RoundState& state, PeerId peer);

// What the worker must do before the next batch: rollbacks, which get their numbers here, and
// closes. None: nothing. `rides`: a batch carries the result. Otherwise the result holds all
// closes, but only the rollbacks that return a whole page. PRECOND: the result is sent at once, and
// the worker has no batch under way.
std::optional<v1::UpdateSlots> TakeUpdates(RoundState& state, PeerId peer, bool rides);

// Sends what no batch carried. PRECOND: the worker has no batch under way.
void SendUpdates(RoundState& state, PeerId peer);

// A drafter answered rollbacks. The check changes nothing; TakeRollbacks is for a checked answer.
absl::Status CheckRollbacks(const RoundState& state, PeerId peer,
                            const v1::UpdateSlotsReply& reply);
void TakeRollbacks(RoundState& state, PeerId peer, const v1::UpdateSlotsReply& reply);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_ROLLBACK_H_
