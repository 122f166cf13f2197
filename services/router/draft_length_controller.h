// How many tokens each slot of a round drafts, so that the whole batch commits the most tokens per
// second, from what the workers were measured to cost and how often drafts were accepted:
//
//   sum over slots (1 + sum_i P(draft tokens 1 … i are accepted)) / (propose + verify seconds)
//
// Where no draft pays, all lengths are 0 and no Propose is sent at all. docs/controller.md has the
// cost model and the rules of probing. No I/O, no clock, no randomness: the same calls give the
// same lengths.
//
// Unbiased: a length is chosen before the round's draws, from rounds that are over (how many draft
// tokens were tested and accepted, how long batches took). Nothing here sees a token, a probability
// or anything else of the round that it decides about; whoever calls must keep it so, as a length
// that depends on the draw it governs biases what is committed.
#ifndef TANDEM_SERVICES_ROUTER_DRAFT_LENGTH_CONTROLLER_H_
#define TANDEM_SERVICES_ROUTER_DRAFT_LENGTH_CONTROLLER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "services/router/acceptance_estimate.h"

namespace tandem {

struct DraftLengthOptions {
  uint32_t initial_length = 4;  // until costs are measured
  uint32_t max_length = 16;     // of adaptive lengths
};

// A slot whose verifier lacks only the pending token.
struct DraftCandidate {
  const AcceptanceEstimate* acceptance = nullptr;
  uint64_t serial = 0;            // of the sequence, to recognize it in the next round
  uint32_t limit = 0;             // room for draft tokens (LimitDraftLength)
  std::optional<uint32_t> fixed;  // what the request asks for: taken as far as `limit` allows
  uint32_t drafter_lack = 1;      // committed tokens that the drafter has no rows of, >= 1
  uint32_t remaining_tokens = 1;  // that the request may still emit
  uint32_t length = 0;            // out
};

// What else is in the round's Verify batch.
struct DraftBatch {
  uint32_t plain_rows = 0;   // slots that decode without a draft, whatever is chosen here
  uint32_t prompt_rows = 0;  // of prompt chunks
  // Another cohort's Propose runs while this one's Verify does, and the other way round: a round
  // takes as long as the longer of the two.
  bool overlapped = false;
};

// A Propose batch that was answered.
struct ProposeCost {
  std::span<const uint32_t> draft_lengths;  // of its items; 0: only caught up
  uint32_t catch_up_rows = 0;               // token_ids of all items
  double compute_seconds = 0;
  double catch_up_seconds = 0;  // of compute_seconds, the first pass; 0: not known
  double overhead_seconds = 0;  // round trip - compute
};

// A Verify batch that was answered.
struct VerifyCost {
  uint32_t rows = 0;         // committed and draft tokens of all items
  uint32_t prompt_rows = 0;  // of them, of prompt chunks
  double compute_seconds = 0;
  double overhead_seconds = 0;  // round trip - compute
};

class DraftLengthController {
 public:
  explicit DraftLengthController(const DraftLengthOptions& options);
  DraftLengthController(const DraftLengthController&) = delete;
  DraftLengthController& operator=(const DraftLengthController&) = delete;

  // For a new sequence. It refers to the controller, which must outlive it.
  AcceptanceEstimate NewEstimate(AcceptanceMode mode) const {
    return AcceptanceEstimate(&priors_[static_cast<size_t>(mode)]);
  }

  // Once for each Propose and Verify that was answered in full.
  void ObservePropose(const ProposeCost& cost);
  void ObserveVerify(const VerifyCost& cost);
  // Once for each decoding slot of an answered Verify, with num_drafted = 0 where it had no draft
  // (or one that was dropped unjudged): updates the sequence's estimate and its mode's prior.
  void ObserveAcceptance(uint64_t serial, AcceptanceMode mode, uint32_t num_drafted,
                         uint32_t num_accepted, AcceptanceEstimate* acceptance);

  // Sets every candidate's `length` for the next round. Once a round.
  void Choose(std::span<DraftCandidate> candidates, const DraftBatch& batch);

 private:
  DraftLengthOptions options_;
  std::array<AcceptancePrior, kNumAcceptanceModes> priors_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFT_LENGTH_CONTROLLER_H_
