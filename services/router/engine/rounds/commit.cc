#include "services/router/engine/rounds/commit.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/router/engine/rounds/propose_plan.h"
#include "services/router/engine/sessions/worker_text.h"

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

v1::TokenSource SourceOfDrawn(int num_drafted, int num_accepted) {
  if (num_drafted == 0) return v1::TOKEN_SOURCE_PLAIN;
  return num_accepted < num_drafted ? v1::TOKEN_SOURCE_RECOVERED : v1::TOKEN_SOURCE_BONUS;
}

// Appends the tokens, accepted ones first, until the request ends.
Emission Emit(const VerifyBatch::Item& item, v1::VerifyResult& result, Sequence* sequence) {
  Emission emission;
  emission.num_drafted = result.ring_error().empty() ? static_cast<int>(item.num_drafted) : 0;
  emission.num_accepted = static_cast<int>(result.num_accepted());
  emission.last_source = SourceOfDrawn(emission.num_drafted, emission.num_accepted);
  for (int i = 0; i <= emission.num_accepted && !emission.finished; ++i) {
    const bool accepted = i < emission.num_accepted;
    const int32_t token_id =
        accepted ? item.proposal.token_ids[static_cast<size_t>(i)] : result.next_token_id();
    sequence->Append(token_id);
    emission.finished =
        sequence->output.Push(token_id, accepted ? v1::TOKEN_SOURCE_ACCEPTED : emission.last_source,
                              i < result.logprobs_size() ? result.mutable_logprobs(i) : nullptr);
    ++emission.num_emitted;
  }
  return emission;
}

// Books the round with the request's account, and tells the observer.
void Account(RoundState& state, const VerifyBatch::Item& item, const Emission& emission,
             bool ring_failed, double now) {
  RouterSlot& slot = state.slots[item.slot];
  Sequence& sequence = *slot.sequence;
  if (!sequence.account.decoding()) {
    state.observer->OnFirstToken(now - sequence.account.arrived_at());
  }
  sequence.account.Emitted(now);
  CommittedRound round;
  round.emitted_last = emission.num_emitted > emission.num_accepted;
  round.last_source = emission.last_source;
  if (emission.num_drafted == 0) {
    sequence.account.AddPlainRound();
    if (item.end - item.begin == 1 && FixedDraftLength(state.options, sequence) != 0u) {
      ++state.out.counts.fallbacks[ring_failed ? Fallback::kRingError : slot.fallback];
    }
  } else {
    const bool rejection_emitted =
        emission.num_accepted < emission.num_drafted && round.emitted_last;
    round.num_drafted = emission.num_drafted;
    round.num_accepted = std::min(emission.num_accepted, emission.num_emitted);
    round.num_tested = round.num_accepted + (rejection_emitted ? 1 : 0);
    round.drafter = &state.workers.info(kDrafterPeer)->model();
    sequence.account.AddDraftedRound(round.num_drafted, round.num_accepted, round.num_tested,
                                     *round.drafter);
  }
  state.observer->OnCommitted(round);
}

// The verifier has rolled the rows of rejected tokens back. The drafter keeps the rows of accepted
// tokens, and is told to roll the others back (DueRollbacks).
void KeepAcceptedRows(RoundState& state, const VerifyBatch::Item& item, const Emission& emission) {
  if (emission.num_accepted < emission.num_drafted) {
    ++state.out.counts.rollbacks[Worker::kVerifier];
    state.out.counts.rolled_back_rows[Worker::kVerifier] +=
        static_cast<uint64_t>(emission.num_drafted - emission.num_accepted);
  }
  WorkerPeer& drafter = state.slots.drafter();
  if (item.proposal.session == drafter.session() &&
      drafter.slot(item.slot).cached_len == item.end) {
    drafter.CommitRows(item.slot, static_cast<uint32_t>(emission.num_accepted));
  }
}

// Ends a request that has all its tokens.
void Complete(RoundState& state, uint32_t slot_id) {
  Sequence& sequence = *state.slots[slot_id].sequence;
  v1::GenerateResponse response = sequence.output.Take();
  v1::Completion* completion = response.mutable_completion();
  *completion = sequence.output.completion();
  sequence.account.Fill(completion);
  completion->mutable_speculation()->set_reproducible(sequence.request.open.reproducible());
  v1::Usage* usage = completion->mutable_usage();
  usage->set_prompt_tokens(static_cast<int>(sequence.prompt_len()));
  usage->set_completion_tokens(sequence.output.num_tokens());
  usage->set_cached_prompt_tokens(static_cast<int>(sequence.num_cached_prompt_tokens));
  usage->set_cached_draft_tokens(static_cast<int>(sequence.num_cached_draft_tokens));
  completion->set_seed(sequence.request.open.sampling().seed());
  completion->set_lossless(sequence.request.open.lenience() == 1);
  state.observer->OnCompleted(*completion);
  state.out.commands.push_back(WriteResponse{sequence.call, std::move(response)});
  state.out.ReportFinished(state.slots.Vacate(slot_id), absl::OkStatus());
}

}  // namespace

void Commit(RoundState& state, const VerifyBatch::Item& item, v1::VerifyResult& result,
            double now) {
  Sequence& sequence = *state.slots[item.slot].sequence;
  const bool ring_failed = !result.ring_error().empty();
  if (ring_failed) {
    ++state.out.counts.ring_errors;
    state.out.LogSlot(state.slots, LogLine::Level::kWarning, item.slot,
                      absl::StrCat("log-prob ring: ", WorkerText(result.ring_error())),
                      "log-prob ring: a draft could not be judged; the log says why");
  }
  const Emission emission = Emit(item, result, &sequence);
  sequence.MadeWith(state.workers.info(kVerifierPeer)->numerics_id());
  if (item.end - item.begin == 1) {
    state.controller.ObserveAcceptance(sequence.serial, sequence.mode(),
                                       static_cast<uint32_t>(emission.num_drafted),
                                       result.num_accepted(), &*sequence.acceptance);
  }
  Account(state, item, emission, ring_failed, now);
  KeepAcceptedRows(state, item, emission);
  if (emission.finished) return Complete(state, item.slot);
  state.out.commands.push_back(WriteResponse{sequence.call, sequence.output.Take()});
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
