#include "services/router/draft_length_controller.h"

#include <algorithm>

namespace tandem {

DraftLengthController::DraftLengthController(const DraftLengthOptions& options)
    : options_(options) {}

void DraftLengthController::ObservePropose(const ProposeCost& /*cost*/) {}

void DraftLengthController::ObserveVerify(const VerifyCost& /*cost*/) {}

void DraftLengthController::ObserveAcceptance(uint64_t /*serial*/, AcceptanceMode mode,
                                              uint32_t num_drafted, uint32_t num_accepted,
                                              AcceptanceEstimate* acceptance) {
  acceptance->Observe(num_drafted, num_accepted);
  priors_[static_cast<size_t>(mode)].Observe(num_drafted, num_accepted);
}

void DraftLengthController::Choose(std::span<DraftCandidate> candidates,
                                   const DraftBatch& /*batch*/) {
  for (DraftCandidate& candidate : candidates) {
    candidate.length = std::min(candidate.limit, candidate.fixed.value_or(options_.initial_length));
  }
}

}  // namespace tandem
