#include "services/router/drafting/plain_rounds.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Largest number of rounds without a plan while costs change only a little. The effect of a small
// change on the answer is thus noticed within 8 rounds.
constexpr uint32_t kLargestPatience = 7;
// Number of slots for each such round. A plan of few slots is cheap, and is made more often.
constexpr uint32_t kSlotsPerPatience = 2;
// Change of a cost's logarithm that counts as little: a tenth. On a busy machine, costs differ this
// much from one moment to the next.
constexpr double kLittleChange = 0.1;
// A remembered round becomes invalid if the logarithm of any cost changes by more than this, even
// if drafts are far from paying.
constexpr double kLargestChange = 0.5;

// Whether any slot's draft is at hand. Such a draft differs from round to round, and so does its
// estimate, so that nothing is remembered of its round.
bool HasDraft(std::span<const DraftCandidate> candidates) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [](const DraftCandidate& slot) { return slot.has_draft; });
}

}  // namespace

PlainValue ValuePlainly(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                        const RoundCosts& costs) {
  double attended = batch.plain_attended;
  for (const DraftCandidate& candidate : candidates) attended += candidate.context;
  const auto rows = static_cast<uint32_t>(batch.plain_rows + candidates.size());
  return {{static_cast<double>(rows), costs.VerifySeconds(rows, attended)},
          costs.attended * attended};
}

bool PlainRounds::HasSlotsOf(const Round& then, std::span<const DraftCandidate> candidates,
                             const DraftBatch& batch) {
  const auto is_like = [](const DraftCandidate& now, const DraftCandidate& before) {
    return now.serial == before.serial && now.fixed == before.fixed && now.limit <= before.limit &&
           now.drafter_lack >= before.drafter_lack &&
           now.remaining_tokens <= before.remaining_tokens;
  };
  return batch.prompt_rows == 0 && batch.plain_rows == then.batch.plain_rows &&
         batch.overlapped == then.batch.overlapped &&
         std::equal(candidates.begin(), candidates.end(), then.candidates.begin(),
                    then.candidates.end(), is_like);
}

bool PlainRounds::HasCostsOf(const Round& then, const RoundCosts& costs,
                             const PlainValue& now) const {
  const double largest_change = then.largest_change * then.plain.value.seconds;
  return now.attending_seconds - then.plain.attending_seconds <= largest_change &&
         // A round with drafts has more rows that attend. It gains more than a plain round if
         // attending becomes cheaper.
         (then.plain.attending_seconds - now.attending_seconds) * (1 + max_length_) <=
             largest_change &&
         costs.Distance(then.costs) <= then.largest_change;
}

bool PlainRounds::StillHolds(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                             const RoundCosts& costs, const PlainValue& now) {
  next_patience_ = 0;
  std::optional<Round>& then = rounds_[batch.cohort];
  if (!HasDraft(candidates) && then.has_value() && HasSlotsOf(*then, candidates, batch)) {
    if (HasCostsOf(*then, costs, now)) return true;
    if (costs.Distance(then->costs) <= kLittleChange && then->patience_left > 0) {
      --then->patience_left;
      return true;
    }
    next_patience_ = std::min({2 * then->patience + 1, kLargestPatience,
                               static_cast<uint32_t>(candidates.size()) / kSlotsPerPatience});
  }
  then.reset();
  return false;
}

void PlainRounds::Remember(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                           const RoundCosts& costs, const PlainValue& now, double advantage) {
  if (HasDraft(candidates)) return;
  // If all costs of passes and of attending change by less than a factor f, the time of a round
  // changes by less than f², and the ratio of two rates by less than f⁴.
  const double change = std::log(advantage) / 4;
  rounds_[batch.cohort] = {
      {candidates.begin(), candidates.end()}, batch,          costs,         now,
      std::min(change, kLargestChange),       next_patience_, next_patience_};
  for (DraftCandidate& candidate : rounds_[batch.cohort]->candidates) {
    candidate.acceptance = nullptr;
  }
}

}  // namespace tandem
