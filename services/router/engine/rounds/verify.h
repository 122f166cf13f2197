// The second half of a round: the verifier judges a cohort's proposals, and its verdicts are
// carried out.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_VERIFY_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_VERIFY_H_

#include <cstdint>

#include "services/router/engine/rounds/round_state.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Sends the cohort's rows to the verifier, if there are any. Sequences that gave up their slots for
// others are reported as preempted. PRECOND: the verifier has no batch under way.
void SendVerify(RoundState& state, uint32_t cohort, double now);

// The verifier answered the batch under way. The answer is checked as a whole before any of it
// counts. If the verifier broke a rule, it is dropped, and the batch is lost like one that the
// verifier died in: otherwise the same batch would be sent forever.
void OnVerify(RoundState& state, v1::VerifyReply& reply, double now);

// The verifier's session is lost. Its slots wait, and are rebuilt by the next verifier. Each
// request of the lost batch has one death more. The death is reported if no verifier has computed
// the whole prompt, or if the request was canceled meanwhile. Sequences that verifiers died of too
// often are reported as suspects. `heard_at`: when the verifier last answered anything.
void OnVerifierLost(RoundState& state, double heard_at, double now);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_VERIFY_H_
