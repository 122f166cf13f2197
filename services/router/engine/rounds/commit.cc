#include "services/router/engine/rounds/commit.h"

#include <algorithm>
#include <string>

#include "proto/draft_tree.h"
#include "services/router/engine/rounds/propose_plan.h"

namespace tandem {
namespace {

// What a round gave one sequence.
struct Emission {
  int num_drafted = 0;   // draft tokens that the verifier judged
  int num_accepted = 0;  // draft tokens that it accepted
  int num_emitted = 0;   // tokens that the request took, up to the one that ended it
  v1::TokenSource last_source = v1::TOKEN_SOURCE_UNSPECIFIED;  // source of the drawn token
  bool finished = false;
};

// Index of the i-th accepted token in the proposal.
size_t AcceptedToken(const VerifyBatch::Item& item, const v1::VerifyResult& result, int i) {
  return item.parents.empty() ? static_cast<size_t>(i) : result.path(i);
}

// What the verdict says about each position, from the first one to that of the drawn token. A draft
// that was dropped unjudged has no positions.
std::vector<JudgedPosition> JudgePositions(const VerifyBatch::Item& item,
                                           const v1::VerifyResult& result) {
  if (!result.ring_error().empty()) return {};
  if (item.parents.empty()) return JudgedChain(item.num_drafted, result.num_accepted());
  std::vector<JudgedPosition> positions;
  int32_t node = -1;
  for (int i = 0;; ++i) {
    const int32_t accepted = i < result.path_size() ? static_cast<int32_t>(result.path(i)) : -1;
    JudgedPosition position = {.num_children = 0};
    for (size_t child = 0; child < item.parents.size(); ++child) {
      if (item.parents[child] != node) continue;
      if (static_cast<int32_t>(child) == accepted) {
        position.accepted = static_cast<int32_t>(position.num_children);
      }
      ++position.num_children;
    }
    if (position.num_children > 0) positions.push_back(position);
    if (accepted < 0) return positions;
    node = accepted;
  }
}

// The drawn token took the place of a draft token, or came after the last one.
v1::TokenSource SourceOfDrawn(const Emission& emission, size_t num_tested) {
  if (emission.num_drafted == 0) return v1::TOKEN_SOURCE_PLAIN;
  return static_cast<size_t>(emission.num_accepted) < num_tested ? v1::TOKEN_SOURCE_RECOVERED
                                                                 : v1::TOKEN_SOURCE_BONUS;
}

// Appends the tokens, accepted ones first, until the request ends.
Emission Emit(const VerifyBatch::Item& item, size_t num_tested, v1::VerifyResult& result,
              Sequence* sequence) {
  Emission emission;
  emission.num_drafted = result.ring_error().empty() ? static_cast<int>(item.num_drafted) : 0;
  emission.num_accepted = static_cast<int>(result.num_accepted());
  emission.last_source = SourceOfDrawn(emission, num_tested);
  for (int i = 0; i <= emission.num_accepted && !emission.finished; ++i) {
    const bool accepted = i < emission.num_accepted;
    const int32_t token_id =
        accepted ? item.proposal.token_ids[AcceptedToken(item, result, i)] : result.next_token_id();
    sequence->Append(token_id);
    emission.finished =
        sequence->output.Push(token_id, accepted ? v1::TOKEN_SOURCE_ACCEPTED : emission.last_source,
                              i < result.logprobs_size() ? result.mutable_logprobs(i) : nullptr);
    ++emission.num_emitted;
  }
  return emission;
}

// Books the round with the request's account.
CommittedRound Account(const VerifyBatch::Item& item, const Emission& emission, double now,
                       Sequence* sequence) {
  sequence->account.Emitted(now);
  CommittedRound round;
  round.emitted_last = emission.num_emitted > emission.num_accepted;
  round.last_source = emission.last_source;
  if (emission.num_drafted == 0) {
    sequence->account.AddPlainRound();
    return round;
  }
  const bool rejection_emitted =
      emission.last_source == v1::TOKEN_SOURCE_RECOVERED && round.emitted_last;
  round.num_drafted = emission.num_drafted;
  round.depth = static_cast<int>(DepthOfDraft(item.parents, item.num_drafted));
  round.num_accepted = std::min(emission.num_accepted, emission.num_emitted);
  round.num_tested = round.num_accepted + (rejection_emitted ? 1 : 0);
  round.drafter = item.proposal.drafter;
  if (round.drafter == Drafter::kModel) round.draft_model = item.proposal.model;
  round.num_emitted = emission.num_emitted;
  round.plain_tokens = item.plain_tokens;
  sequence->account.AddDraftedRound(
      {round.num_drafted, round.depth, round.num_accepted, round.num_tested, round.drafter,
       round.num_emitted, round.plain_tokens},
      round.draft_model.empty() ? DrafterName(round.drafter) : round.draft_model);
  return round;
}

// Why a decoding request had no draft that counts. None: it had one, or it wants none.
std::optional<Fallback> WhyPlain(const CommitTerms& terms, const VerifyBatch::Item& item,
                                 const Emission& emission, bool ring_failed,
                                 const RouterSlot& slot) {
  const bool decodes = item.end - item.begin == 1;
  if (emission.num_drafted > 0 || !decodes) return std::nullopt;
  if (FixedDraftLength(*terms.options, *slot.sequence) == 0u ||
      slot.sequence->request.drafters.empty()) {
    return std::nullopt;
  }
  return ring_failed ? Fallback::kRingError : slot.fallback;
}

// Returns how many accepted tokens belong to the chain that begins the draft. The draft model has
// no row of a sibling.
uint32_t NumAcceptedOfChain(const VerifyBatch::Item& item, const v1::VerifyResult& result,
                            int num_accepted) {
  uint32_t count = 0;
  while (count < static_cast<uint32_t>(num_accepted) &&
         AcceptedToken(item, result, static_cast<int>(count)) == count) {
    ++count;
  }
  return count;
}

// The drafter keeps the rows of accepted tokens, and is told to roll the others back
// (DueRollbacks).
void KeepAcceptedRows(const VerifyBatch::Item& item, const v1::VerifyResult& result,
                      const Emission& emission, Slots* slots) {
  if (item.proposal.session == 0) return;
  WorkerPeer& drafter = slots->peer(item.proposal.peer);
  if (item.proposal.session == drafter.session() &&
      drafter.slot(item.slot).cached_len == item.end) {
    drafter.CommitRows(item.slot, NumAcceptedOfChain(item, result, emission.num_accepted));
  }
}

void FillCompletion(const Sequence& sequence, v1::Completion* completion) {
  *completion = sequence.output.completion();
  sequence.account.Fill(completion);
  completion->mutable_speculation()->set_reproducible(sequence.request.open.reproducible());
  v1::Usage* usage = completion->mutable_usage();
  usage->set_prompt_tokens(static_cast<int>(sequence.prompt_len()));
  usage->set_completion_tokens(sequence.output.num_tokens());
  usage->set_cached_prompt_tokens(static_cast<int>(sequence.num_cached.verifier));
  usage->set_cached_draft_tokens(static_cast<int>(sequence.num_cached.drafter));
  for (const std::string& warning : sequence.request.warnings) completion->add_warnings(warning);
  completion->set_seed(sequence.request.open.sampling().seed());
  completion->set_lossless(sequence.request.open.lenience() == 1);
}

}  // namespace

Committed Commit(const CommitTerms& terms, const VerifyBatch::Item& item, v1::VerifyResult& result,
                 double now, Slots* slots) {
  RouterSlot& slot = (*slots)[item.slot];
  Sequence& sequence = *slot.sequence;
  Committed committed;
  if (!sequence.account.decoding()) {
    committed.first_token_seconds = now - sequence.account.arrived_at();
  }
  committed.judged = JudgePositions(item, result);
  const Emission emission = Emit(item, committed.judged.size(), result, &sequence);
  sequence.MadeWith(terms.verifier->numerics_id());
  committed.round = Account(item, emission, now, &sequence);
  committed.fallback = WhyPlain(terms, item, emission, !result.ring_error().empty(), slot);
  committed.num_rejected =
      static_cast<uint32_t>(std::max(emission.num_drafted - emission.num_accepted, 0));
  KeepAcceptedRows(item, result, emission, slots);
  committed.response = sequence.output.Take();
  if (emission.finished) FillCompletion(sequence, committed.response.mutable_completion());
  return committed;
}

void KeepScores(const VerifyBatch::Item& item, v1::VerifyResult& result, Sequence* sequence) {
  for (int i = 0; i < result.prompt_logprobs_size(); ++i) {
    sequence->output.PushPrompt(sequence->tokens()[item.begin + static_cast<uint32_t>(i) + 1],
                                *result.mutable_prompt_logprobs(i));
  }
}

v1::GenerateResponse CommitPrompt(const VerifyBatch::Item& item, double now, Sequence* sequence) {
  const bool is_done = !sequence->wants_output() && item.end >= sequence->num_rows_wanted();
  if (is_done) {
    sequence->account.Emitted(now);
    sequence->output.FinishWithoutOutput();
  }
  v1::GenerateResponse response = sequence->output.Take();
  if (is_done) FillCompletion(*sequence, response.mutable_completion());
  return response;
}

}  // namespace tandem
