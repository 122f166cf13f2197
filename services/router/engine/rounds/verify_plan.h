// Which rows of a cohort the verifier computes in this round: functions over Slots that send
// nothing.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_VERIFY_PLAN_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_VERIFY_PLAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/router/engine/engine_options.h"
#include "services/router/engine/rounds/proposal.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

// What a Verify batch does for one slot.
struct VerifyPlan {
  uint32_t slot = 0;
  uint32_t num_tokens = 0;  // committed tokens that are sent
  uint32_t num_drafted = 0;
};

// Plans the rows, in the order of the requests' ages. Each slot that decodes and may join gets its
// rows, and prompts share the rest. `proposals`: by slot; those of former lives do not count.
//
// A suspect is a request that a verifier died with, and that has made no progress since. A harmless
// request is no suspect, and a verifier has computed its whole prompt. Harmless requests may always
// join. Of the others, the oldest decides: a suspect joins alone, so that a second death is most
// likely its own, and a new prompt joins with all new prompts. So nobody waits for requests that
// came later.
std::vector<VerifyPlan> PlanVerify(const EngineOptions& options, const Slots& slots,
                                   uint32_t cohort, std::span<const Proposal> proposals);

// A plan that fits the free pages, and the sequences that gave their slots up for it.
struct ReservedPlan {
  std::vector<VerifyPlan> plans;
  std::vector<std::unique_ptr<Sequence>> preempted;
};

// Cuts the plan to the pages that are free. A slot's draft goes first, and the slot's `fallback`
// says so. Then the youngest requests give their slots up. A suspect that finds no page gives its
// slot up too, because others wait for it.
ReservedPlan ReservePages(std::vector<VerifyPlan> plans, Slots* slots);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_VERIFY_PLAN_H_
