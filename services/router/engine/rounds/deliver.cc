#include "services/router/engine/rounds/deliver.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/router/engine/rounds/commit.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

void NoteRingError(RoundState& state, uint32_t slot_id, const std::string& ring_error) {
  ++state.out.counts.ring_errors;
  state.out.LogSlot(state.slots, LogLine::Level::kWarning, slot_id,
                    absl::StrCat("log-prob ring: ", WorkerText(ring_error)),
                    "log-prob ring: a draft could not be judged; the log says why");
}

void CountRound(const Committed& committed, Counts* counts) {
  if (committed.fallback.has_value()) ++counts->fallbacks[*committed.fallback];
  if (committed.num_rejected == 0) return;
  ++counts->rollbacks[Worker::kVerifier];
  counts->rolled_back_rows[Worker::kVerifier] += committed.num_rejected;
}

// Whether the drafts of a drafter that lives in the verifier come from the heads that it has now.
// Heads of the same kind may have replaced those that made this draft.
bool IsOfPresentHeads(const VerifyBatch::Item& item, const Sequence& sequence) {
  return item.proposal.heads_version == sequence.lookups->self_version();
}

// Tells the proposals of the verifier's own drafter what they gained in this round, and what the
// new one cost.
void ObserveSelf(const RoundState& state, const VerifyBatch::Item& item, const Committed& committed,
                 const v1::VerifyResult& result, Sequence* sequence) {
  SelfProposals* self = sequence->lookups == nullptr ? nullptr : sequence->lookups->self();
  if (self == nullptr) return;
  if (item.proposal_limits.has_value() && !result.has_proposal()) return self->OnNoAnswer();
  SelfProposals::Round round;
  round.place = PlaceOf(item.proposal);
  const bool is_own = item.proposal.drafter == self->drafter() && IsOfPresentHeads(item, *sequence);
  if (committed.round.num_drafted > 0 && is_own) {
    std::vector<uint32_t> accepted(result.path().begin(), result.path().end());
    if (item.parents.empty()) {
      accepted.resize(result.num_accepted());
      std::iota(accepted.begin(), accepted.end(), 0U);
    }
    self->OnJudged(item.proposal.beliefs, item.parents, accepted);
    // A trial says nothing of what the proposal is good for.
    if (item.proposal.rival_worth.has_value()) {
      const double row_cost = item.proposal.pace * state.verifier_times.row_cost;
      round.gained = static_cast<double>(result.num_accepted()) -
                     committed.round.num_drafted * row_cost - *item.proposal.rival_worth;
    }
  }
  const VerifyStats& times = state.verifier_times;
  const Cohort& cohort = state.cohorts[state.slots[item.slot].cohort];
  const double plain_seconds =
      cohort.plain_seconds > 0 ? cohort.plain_seconds : times.decode_seconds.value();
  if (item.proposal_limits.has_value() && plain_seconds > 0) {
    // All slots wait for the proposals, and those that asked share the blame.
    // After a match, time is worth what plain decoding makes of it, as where a match is found.
    const double pace = round.place == AskingPlace::kAfterMatch
                            ? 1
                            : std::max(1.0, sequence->lookups->pace().tokens_per_plain_round());
    const double together = pace * times.propose_seconds.value() / plain_seconds;
    round.cost.emplace(together * cohort.num_decoding / times.num_asking, together);
  }
  round.teaches = !FixedDraftLength(state.options, *sequence).has_value();
  self->OnRound(round);
}

// Teaches the controllers what the verdict says about the drafter.
void ObserveDraft(RoundState& state, const VerifyBatch::Item& item, const Committed& committed,
                  const v1::VerifyResult& result, Sequence* sequence) {
  const auto num_drafted = static_cast<uint32_t>(committed.round.num_drafted);
  ModelChoice& models = *sequence->models;
  if (num_drafted > 0 && item.proposal.drafter != Drafter::kModel) {
    if (IsSelfDrafter(item.proposal.drafter) && !IsOfPresentHeads(item, *sequence)) {
      sequence->lookups->ObserveNone();
    } else {
      sequence->lookups->Observe(item.proposal.drafter, item.proposal.match_length,
                                 static_cast<uint32_t>(committed.round.depth), committed.judged);
    }
    state.draft_models.controller().ObserveFoundDraft(sequence->serial, num_drafted,
                                                      result.num_accepted());
    // No draft model had a draft in this round.
    for (size_t i = 0; i < models.size(); ++i) models.estimate(i).Observe({});
    return;
  }
  // The number may have got another model since the draft was made.
  const bool is_known = item.proposal.session == state.slots.peer(item.proposal.peer).session();
  if (num_drafted > 0 && !is_known) {
    for (size_t i = 0; i < models.size(); ++i) models.estimate(i).Observe({});
    return;
  }
  if (num_drafted > 0) models.OnJudged(DraftModelOf(item.proposal.peer));
  if (sequence->lookups != nullptr) sequence->lookups->ObserveNone();
  for (uint32_t i = 0; i < models.size(); ++i) {
    if (num_drafted > 0 && i != DraftModelOf(item.proposal.peer)) {
      models.estimate(i).Observe({});
      continue;
    }
    state.draft_models.controller(i).ObserveDraft(
        sequence->serial, sequence->mode(), committed.judged, num_drafted, &models.estimate(i));
  }
}

// Notes how fast a request was decoded after its first token.
void Compare(const v1::Completion& completion, const ModelChoice& choice, DraftModels* models) {
  constexpr int kLeastTokens = 8;  // fewer tell more about the queue than about drafts
  const int num_tokens = completion.usage().completion_tokens();
  if (num_tokens < kLeastTokens) return;
  models->NoteSpeed(choice, completion.timings().decode_seconds() / (num_tokens - 1));
}

// Keeps what the verifier proposes after the committed tokens, unless its heads are gone.
void TakeSelfProposal(const v1::SelfProposal& proposal, Sequence* sequence) {
  if (sequence->lookups == nullptr || sequence->lookups->self() == nullptr) return;
  LookupDraft draft;
  draft.token_ids.assign(proposal.token_ids().begin(), proposal.token_ids().end());
  draft.parents.assign(proposal.parents().begin(), proposal.parents().end());
  draft.beliefs.assign(proposal.chances().begin(), proposal.chances().end());
  sequence->lookups->self()->OnProposal(sequence->committed_len(), std::move(draft));
}

// Tells the lookups what the target expected after the tokens of the round, up to the last accepted
// one. The drawn token has no row yet.
void LearnSuccessors(const VerifyBatch::Item& item, const v1::VerifyResult& result,
                     Sequence* sequence) {
  if (sequence->lookups == nullptr || item.num_successors == 0) return;
  const std::span successors(result.successors().data(),
                             static_cast<size_t>(result.successors_size()));
  for (uint32_t i = 0; i <= result.num_accepted(); ++i) {
    sequence->lookups->Learn(
        sequence->tokens()[item.end - 1 + i],
        successors.subspan(size_t{i} * item.num_successors, item.num_successors));
  }
}

}  // namespace

void CommitAndDeliver(RoundState& state, const VerifyBatch::Item& item, v1::VerifyResult& result,
                      double now) {
  if (!result.ring_error().empty()) NoteRingError(state, item.slot, result.ring_error());
  const CommitTerms terms{&state.options, state.workers.info(kVerifierPeer)};
  Committed committed = Commit(terms, item, result, now, &state.slots);
  Sequence& sequence = *state.slots[item.slot].sequence;
  if (item.end - item.begin == 1) {
    ObserveDraft(state, item, committed, result, &sequence);
    if (sequence.lookups != nullptr) {
      sequence.lookups->pace().OnRound(now, result.num_accepted() + 1.0,
                                       state.cohorts[state.slots[item.slot].cohort].plain_seconds);
    }
    ObserveSelf(state, item, committed, result, &sequence);
  } else if (sequence.lookups != nullptr && sequence.lookups->self() != nullptr) {
    // The end of a prompt, or of a text that was preempted, has no draft that could gain.
    sequence.lookups->self()->OnPrompt();
    ObserveSelf(state, item, committed, result, &sequence);
  }
  CountRound(committed, &state.out.counts);
  if (committed.first_token_seconds.has_value()) {
    state.observer->OnFirstToken(*committed.first_token_seconds);
  }
  state.observer->OnCommitted(committed.round);
  const bool finished = committed.response.has_completion();
  if (!finished) LearnSuccessors(item, result, &sequence);
  if (!finished && result.has_proposal()) TakeSelfProposal(result.proposal(), &sequence);
  if (finished) {
    state.observer->OnCompleted(committed.response.completion());
    Compare(committed.response.completion(), *sequence.models, &state.draft_models);
  }
  state.out.commands.push_back(WriteResponse{sequence.call, std::move(committed.response)});
  if (finished) state.out.ReportFinished(state.slots.Vacate(item.slot), absl::OkStatus());
}

void DeliverPrompt(RoundState& state, const VerifyBatch::Item& item, double now) {
  Sequence& sequence = *state.slots[item.slot].sequence;
  if (item.num_scored == 0 && sequence.wants_output()) return;
  v1::GenerateResponse response = CommitPrompt(item, now, &sequence);
  const bool finished = response.has_completion();
  if (item.num_scored == 0 && !finished) return;
  if (finished) state.observer->OnCompleted(response.completion());
  state.out.commands.push_back(WriteResponse{sequence.call, std::move(response)});
  if (finished) state.out.ReportFinished(state.slots.Vacate(item.slot), absl::OkStatus());
}

void CompareReplay(RoundState& state, uint32_t slot_id, int32_t token_id) {
  Sequence& replay = *state.slots[slot_id].sequence;
  const auto position = static_cast<uint32_t>(replay.output_tokens().size());
  const int32_t expected = replay.expected[position];
  replay.Append(token_id);
  std::optional<ReplayMismatch> mismatch;
  if (token_id != expected) {
    mismatch = ReplayMismatch{position, expected, token_id};
  } else if (position + 1 < replay.expected.size()) {
    return;
  }
  state.audit->OnReplay(replay.request.request_id, mismatch);
  state.out.ReportFinished(state.slots.Vacate(slot_id), absl::OkStatus());
}

void ReportAlarm(RoundState& state) {
  if (std::string alarm = state.audit->TakeAlarm(); !alarm.empty()) {
    state.out.commands.push_back(
        LogLine{.level = LogLine::Level::kError,
                .text = std::move(alarm),
                .summary = "audit: found a difference; the log says where"});
  }
}

}  // namespace tandem
