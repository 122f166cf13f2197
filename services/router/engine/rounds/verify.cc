#include "services/router/engine/rounds/verify.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/drafting/drafter_gain.h"
#include "services/router/engine/rounds/deliver.h"
#include "services/router/engine/rounds/propose_plan.h"
#include "services/router/engine/rounds/rollback.h"
#include "services/router/engine/rounds/verify_plan.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

// Seconds after which a sequence that found no page, or no slot, tries again.
constexpr double kNoPageSeconds = 0.05;
// Ends what a client is told of a verifier's refusal.
constexpr char kSeeLog[] = " (the router's log says why)";

// ---------------------------------------------------------------- sending

// How large a proposal of the verifier's own drafter may be after it has judged `judged`. None: it
// is not asked.
std::optional<DraftLimits> ProposalLimits(const RoundState& state, uint32_t slot_id,
                                          const Proposal& judged) {
  const Sequence& sequence = *state.slots[slot_id].sequence;
  if (sequence.lookups == nullptr) return std::nullopt;
  const SelfProposals* self = sequence.lookups->self();
  const v1::AttachReply& verifier = *state.workers.info(kVerifierPeer);
  // A verifier that came back may have other heads, or none.
  if (self == nullptr || verifier.self_drafter().name() != DrafterName(self->drafter())) {
    return std::nullopt;
  }
  const std::optional<uint32_t> fixed = FixedDraftLength(state.options, sequence);
  // Who fixes the length and names no other drafter wants drafts, whatever they gain.
  const bool insists =
      fixed.has_value() && sequence.request.drafters == DrafterSet(self->drafter());
  const uint32_t num_decoding = state.cohorts[state.slots[slot_id].cohort].num_decoding;
  if (!insists && !self->IsWanted(PlaceOf(judged), num_decoding)) {
    return std::nullopt;
  }
  // The round emits one token or more, and the last token needs no draft.
  const uint32_t left = sequence.remaining_tokens() - std::min(sequence.remaining_tokens(), 2U);
  const uint32_t depth =
      std::min({fixed.value_or(state.options.workers.max_draft_length),
                state.options.workers.max_draft_length, verifier.self_drafter().max_depth(), left});
  if (depth == 0) return std::nullopt;
  return DraftLimits{depth, MaxTreeNodes(state.options, sequence)};
}

// Asks for the log-probabilities of the prompt's tokens after the item's rows, as far as the client
// wants them and has not got them.
void AskForScores(const Sequence& sequence, VerifyBatch::Item* sent, v1::VerifyItem* item) {
  const uint32_t wanted = std::min(sent->end, sequence.num_scores_wanted());
  if (sent->begin < sequence.num_scores() || sent->begin >= wanted) return;
  sent->num_scored = wanted - sent->begin;
  sent->num_top = static_cast<uint32_t>(sequence.request.open.prompt_logprobs());
  item->mutable_scores()->set_num_rows(sent->num_scored);
  if (wanted == sent->end) {
    item->mutable_scores()->set_following_token_id(sequence.tokens()[sent->end]);
  }
}

// Fills one item of the command, and returns what is expected of its answer.
VerifyBatch::Item BuildItem(RoundState& state, const VerifyPlan& plan, Proposal* proposal,
                            v1::VerifyItem* item) {
  WorkerPeer& verifier = state.slots.verifier();
  const Sequence& sequence = *state.slots[plan.slot].sequence;
  VerifyBatch::Item sent;
  sent.slot = plan.slot;
  sent.serial = sequence.serial;
  sent.begin = verifier.slot(plan.slot).cached_len;
  sent.end = sent.begin + plan.num_tokens;
  sent.sample = sent.end == sequence.committed_len() && sequence.wants_output();
  AskForScores(sequence, &sent, item);
  sent.wants_logprobs = sequence.request.wants_logprobs;
  sent.num_successors = sequence.request.open.num_successors();
  sent.witness = sequence.witness();
  if (plan.num_drafted > 0) sent.proposal = std::exchange(*proposal, Proposal());
  sent.num_drafted = static_cast<uint32_t>(sent.proposal.token_ids.size());
  sent.parents = std::move(sent.proposal.parents);
  *item->mutable_at() = verifier.NextPoint(plan.slot, sequence);
  if (verifier.Open(plan.slot)) *item->mutable_open() = sequence.request.open;
  const auto tokens = sequence.tokens().subspan(sent.begin, plan.num_tokens);
  item->mutable_token_ids()->Assign(tokens.begin(), tokens.end());
  item->mutable_draft_token_ids()->Assign(sent.proposal.token_ids.begin(),
                                          sent.proposal.token_ids.end());
  item->mutable_parents()->Assign(sent.parents.begin(), sent.parents.end());
  if (sent.proposal.ring.has_value()) *item->mutable_ring() = *sent.proposal.ring;
  item->set_sample(sent.sample);
  if (sent.sample) sent.proposal_limits = ProposalLimits(state, plan.slot, sent.proposal);
  if (sent.proposal_limits.has_value()) {
    item->mutable_propose()->set_max_depth(sent.proposal_limits->max_depth);
    item->mutable_propose()->set_max_nodes(sent.proposal_limits->max_nodes);
  }
  return sent;
}

// ---------------------------------------------------------------- verdicts

absl::Status CheckVerify(const RoundState& state, const VerifyBatch& batch,
                         const v1::VerifyReply& reply) {
  TANDEM_RETURN_IF_ERROR(CheckNumResults(batch.items.size(), reply.results_size()));
  const uint32_t vocabulary_size = state.workers.info(kVerifierPeer)->vocabulary_size();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(
        CheckVerifyResult(batch.items[i], reply.results(static_cast<int>(i)), vocabulary_size));
  }
  return absl::OkStatus();
}

// The verifier refused the sequence in a slot. The request ends with `told`; what the verifier says
// of it is for the log alone.
void FailSlot(RoundState& state, const v1::SlotState& slot, const absl::Status& told) {
  state.out.LogSlot(
      state.slots, LogLine::Level::kWarning, slot.slot(),
      absl::StrCat("verifier: refused the request, which is given up: ",
                   v1::WorkerCode_Name(slot.code()), ": ", WorkerText(slot.message())),
      "verifier: refused a request, which is given up; the log says why");
  state.out.ReportFinished(state.slots.Vacate(slot.slot()), told);
}

// Others hold the pages, or the slots, that an item needs.
void OnNoPages(RoundState& state, const VerifyBatch::Item& item, const v1::SlotState& slot,
               double now) {
  const uint32_t rows = item.end + item.num_drafted;
  WorkerPeer& verifier = state.slots.verifier();
  if (const PageBudget& pages = verifier.pages();
      !pages.limited() || pages.PagesOf(rows) > int64_t{pages.num_pages()}) {
    return FailSlot(state, slot,
                    ResourceExhausted(absl::StrCat("the verifier has no room for this request, of ",
                                                   rows, " tokens by now", kSeeLog)));
  }
  const Sequence& sequence = *state.slots[item.slot].sequence;
  if (sequence.is_replay()) {  // nobody waits for a replay
    return state.out.ReportFinished(state.slots.Vacate(item.slot), absl::OkStatus());
  }
  verifier.Resynchronize(slot, sequence);
  // Usually other requests of this router give way in the next round. If none of them holds a page,
  // other routers have all pages: the sequence gives its own pages back, so that no two wait for
  // each other, and tries again later. A sequence that holds nothing loses nothing by that, and
  // can go to another pod meanwhile.
  bool others_hold = false;
  for (uint32_t id = 0; id < state.slots.size(); ++id) {
    others_hold = others_hold || (id != item.slot && state.slots[id].sequence != nullptr &&
                                  verifier.slot(id).cached_len > 0);
  }
  if (others_hold && verifier.slot(item.slot).cached_len > 0) return;
  state.out.ReportPreempted(state.slots.Vacate(item.slot));
  // A replay must not keep the pages that a client lacks.
  while (const std::optional<uint32_t> replay = state.slots.SlotOfReplay()) {
    state.out.ReportPreempted(state.slots.Vacate(*replay));
  }
  state.admit_at = now + kNoPageSeconds;
}

// The verifier refused an item.
void OnRefused(RoundState& state, const VerifyBatch::Item& item, const v1::SlotState& slot,
               double now) {
  Sequence& sequence = *state.slots[item.slot].sequence;
  switch (slot.code()) {
    case v1::WORKER_CODE_ABORTED:
      if (!sequence.faults.VerifierDisagreed()) {
        return state.slots.verifier().Resynchronize(slot, sequence);
      }
      return FailSlot(state, slot,
                      Internal(absl::StrCat(
                          "router and verifier cannot agree on this request's tokens", kSeeLog)));
    case v1::WORKER_CODE_NON_FINITE_LOGITS: {
      const uint32_t num_tokens = sequence.committed_len();
      return state.out.ReportFinished(
          state.slots.Vacate(item.slot),
          Internal(
              absl::StrCat("the target produced non-finite logits after ", num_tokens, " tokens")));
    }
    case v1::WORKER_CODE_RESOURCE_EXHAUSTED:
      return OnNoPages(state, item, slot, now);
    default:
      return FailSlot(state, slot,
                      Internal(absl::StrCat("the verifier failed at this request", kSeeLog)));
  }
}

void CountCached(Counts* counts, const VerifyBatch::Item& item, uint32_t num_cached,
                 Sequence* sequence) {
  if (item.begin < sequence->furthest_len || sequence->is_replay()) return;
  sequence->num_cached.verifier += num_cached;
  counts->cached_prompt_tokens += num_cached;
  if (item.end - item.begin <= 1) return;
  counts->prefix_lookups[Worker::kVerifier] += item.end - item.begin;
  counts->prefix_hits[Worker::kVerifier] += num_cached;
}

// The verifier holds this number of rows of the sequence.
void NoteProgress(RoundState& state, uint32_t num_rows, Sequence* sequence) {
  if (num_rows <= sequence->furthest_len) return;
  const VerifierDeaths before = sequence->faults.verifier_deaths();
  sequence->furthest_len = num_rows;
  sequence->faults.VerifierHolds(num_rows);
  const bool is_cleared = before.num > 0 && sequence->faults.verifiers_lost() == 0;
  // Copies of the prompt share the rows up to its end.
  if (is_cleared && before.rows <= sequence->prompt_len()) {
    state.out.ReportPrompt(sequence->witness().Report());
  }
}

// The same for a request that was canceled. Its deaths may have been kept for its prompt.
void NoteProgressOfCanceled(RoundState& state, const v1::SlotState& slot, PromptWitness* witness) {
  if (slot.code() != v1::WORKER_CODE_OK || witness->faults.verifiers_lost() == 0) return;
  witness->faults.VerifierHolds(slot.cached_len());
  if (witness->faults.verifiers_lost() == 0) state.out.ReportPrompt(witness->Report());
}

// Carries out one checked result. PRECOND: the item's sequence is still in its slot.
void TakeVerdict(RoundState& state, const VerifyBatch::Item& item, v1::VerifyResult& result,
                 double now) {
  const v1::SlotState& slot = result.state();
  if (slot.code() != v1::WORKER_CODE_OK) return OnRefused(state, item, slot, now);
  Sequence& sequence = *state.slots[item.slot].sequence;
  CountCached(&state.out.counts, item, result.num_cached_tokens(), &sequence);
  NoteProgress(state, slot.cached_len(), &sequence);
  sequence.faults.VerifierAgreed();
  state.slots.verifier().Hold(item.slot, slot.cached_len(), slot.cached_len());
  KeepScores(item, result, &sequence);
  if (!item.sample) return DeliverPrompt(state, item, now);
  // All samples of the reply count, whatever becomes of its tokens. They were checked. They count
  // for the drafter whose draft was sent, whatever the verifier made of the draft.
  (void)state.audit->OnSamples(
      item.num_drafted > 0 ? std::optional(item.proposal.drafter) : std::nullopt, result.audit());
  if (sequence.is_replay()) {
    CompareReplay(state, item.slot, result.next_token_id());
  } else {
    CommitAndDeliver(state, item, result, now);
  }
  ReportAlarm(state);
}

// ---------------------------------------------------------------- what drafts take

// A drafter that worked before the Verify, while all slots of the round waited.
struct DrafterWork {
  Drafter drafter = Drafter::kModel;
  std::string model = {};
  double seconds = 0;
  uint32_t rows = 0;  // draft tokens of this drafter in the Verify
};

// The drafters that worked, by draft model, and the corpus last.
constexpr size_t kCorpusWork = kMaxDraftModels;
using DrafterWorks = std::array<DrafterWork, kMaxDraftModels + 1>;

// Place of a draft's maker there. None: its drafts are found at once, or by the verifier.
std::optional<size_t> WorkOf(const Proposal& proposal) {
  if (proposal.drafter == Drafter::kModel) return DraftModelOf(proposal.peer);
  return proposal.drafter == Drafter::kRetrieval ? std::optional(kCorpusWork) : std::nullopt;
}

DrafterWorks WorksOf(const RoundState& state, const VerifyBatch& batch) {
  const Cohort& cohort = state.cohorts[batch.cohort];
  DrafterWorks works;
  for (size_t i = 0; i < cohort.propose_seconds.size(); ++i) {
    works[i].seconds = cohort.propose_seconds[i];
    works[i].model = cohort.propose_models[i];
  }
  works[kCorpusWork].drafter = Drafter::kRetrieval;
  works[kCorpusWork].seconds = cohort.search_seconds;
  for (const VerifyBatch::Item& item : batch.items) {
    const std::optional<size_t> work = WorkOf(item.proposal);
    if (item.num_drafted > 0 && work.has_value()) works[*work].rows += item.num_drafted;
  }
  return works;
}

JudgedRows CountRows(const VerifyBatch& batch, const VerifyCost& cost) {
  JudgedRows rows;
  for (const VerifyBatch::Item& item : batch.items) {
    const uint32_t num_tokens = item.end - item.begin;
    rows.draft_rows += item.num_drafted;
    rows.draft_attended +=
        Attended(item.begin, num_tokens + item.num_drafted) - Attended(item.begin, num_tokens);
    if (!item.sample) continue;
    ++rows.num_waiting;
    rows.waiting_attended += item.end;
  }
  rows.other_rows = cost.rows - rows.draft_rows;
  rows.other_attended = std::max(0.0, cost.attended - rows.draft_attended);
  return rows;
}

// Prices of the round's drafts. None: the costs are not known yet, or no drafter worked.
std::optional<DraftPrices> PricesOfRound(const RoundState& state, const VerifyBatch& batch,
                                         const VerifyCost& cost, const DrafterWorks& works,
                                         double propose_seconds) {
  const DraftCosts& costs = state.draft_models.controller().costs();
  const JudgedRows rows = CountRows(batch, cost);
  DraftingTime time;
  for (const DrafterWork& work : works) time.before += work.seconds;
  time.beside = propose_seconds;
  const bool any = rows.draft_rows > 0 || time.before > 0 || time.beside > 0;
  if (!any || rows.num_waiting == 0 || !costs.verify_measured()) return std::nullopt;
  for (uint32_t id = 0; id < state.slots.size(); ++id) {
    const RouterSlot& slot = state.slots[id];
    if (slot.sequence != nullptr && slot.cohort != batch.cohort && !state.slots.IsWaiting(id)) {
      time.overlapped = true;
    }
  }
  return PricesOf(costs.Expected(), rows, time);
}

// Notes in the items what their drafts took from all slots, and tells the observer of drafters that
// worked and have no judged draft in the round.
void PriceDrafts(RoundState& state, const v1::VerifyReply& reply, const VerifyCost& cost,
                 VerifyBatch* batch) {
  const DrafterWorks works = WorksOf(state, *batch);
  const double propose = reply.propose_seconds();
  const std::optional<DraftPrices> prices = PricesOfRound(state, *batch, cost, works, propose);
  if (!prices.has_value()) return;
  for (const DrafterWork& work : works) {
    if (work.seconds == 0 || work.rows > 0) continue;
    state.observer->OnDraftingWork(work.drafter, work.model, work.seconds * prices->second);
  }
  const std::optional<Drafter> self =
      FindDrafter(state.workers.info(kVerifierPeer)->self_drafter().name());
  if (self.has_value() && propose > 0) {
    state.observer->OnDraftingWork(*self, "", propose * prices->second);
  }
  for (size_t i = 0; i < batch->items.size(); ++i) {
    VerifyBatch::Item& item = batch->items[i];
    Sequence* sequence = state.slots.Find(item.slot, item.serial);
    if (sequence != nullptr && self.has_value() && item.proposal_limits.has_value()) {
      sequence->account.AddDraftingWork(*self,
                                        propose * prices->second / state.verifier_times.num_asking);
    }
    if (item.num_drafted == 0) continue;
    double taken = item.num_drafted * prices->row;
    if (const std::optional<size_t> work = WorkOf(item.proposal); work.has_value()) {
      const double share = static_cast<double>(item.num_drafted) / works[*work].rows;
      taken += share * works[*work].seconds * prices->second;
    }
    const v1::VerifyResult& result = reply.results(static_cast<int>(i));
    const bool is_judged = sequence != nullptr && result.state().code() == v1::WORKER_CODE_OK &&
                           result.ring_error().empty();
    if (is_judged) {
      item.plain_tokens = 1 + taken;
    } else {
      state.observer->OnDraftingWork(item.proposal.drafter, item.proposal.model, taken);
    }
  }
}

// ---------------------------------------------------------------- times

VerifyCost CostOf(const VerifyBatch& batch, const v1::VerifyReply& reply, double now) {
  uint32_t num_cached = 0;
  double cached_attended = 0;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const VerifyBatch::Item& item = batch.items[i];
    const uint32_t cached =
        std::min(reply.results(static_cast<int>(i)).num_cached_tokens(), item.end - item.begin);
    num_cached += cached;
    cached_attended += Attended(item.begin, cached);
  }
  VerifyCost cost;
  cost.prompt_rows = batch.prompt_rows - std::min(batch.prompt_rows, num_cached);
  cost.rows = batch.rows - (batch.prompt_rows - cost.prompt_rows);
  cost.attended = batch.attended - cached_attended;
  cost.compute_seconds = reply.compute_seconds();
  cost.overhead_seconds = now - batch.begun_at - reply.compute_seconds() - reply.propose_seconds();
  return cost;
}

void ObserveVerify(RoundState& state, const VerifyBatch& batch, const v1::VerifyReply& reply,
                   const VerifyCost& cost) {
  const double compute = cost.compute_seconds;
  state.draft_models.ObserveVerify(cost);
  if (batch.prompt_rows == 0) {
    // After a prompt, the verifier's drafter has the prompt to look at, too.
    if (reply.propose_seconds() > 0) {
      state.verifier_times.propose_seconds.Add(reply.propose_seconds());
    }
    state.verifier_times.decode_seconds.Add(compute);
  } else if (cost.prompt_rows >= kMinChunkRows) {
    const double decoding = cost.rows > cost.prompt_rows
                                ? std::min(state.verifier_times.decode_seconds.value(), compute)
                                : 0;
    state.slots.verifier().row_seconds().Add((compute - decoding) / cost.prompt_rows);
  }
}

void TellRound(const RoundState& state, const VerifyBatch& batch, const v1::VerifyReply& reply,
               double round_trip, double now) {
  const Cohort& cohort = state.cohorts[batch.cohort];
  RoundSeconds round = cohort.round;
  round.total = now - (round.draft > 0 ? cohort.round_begun_at : batch.begun_at);
  round.verify = reply.compute_seconds();
  round.draft += reply.propose_seconds();
  round.transfer += round_trip - reply.compute_seconds() - reply.propose_seconds();
  round.commit += now - batch.begun_at - round_trip;
  state.observer->OnRound(round);
}

}  // namespace

void SendVerify(RoundState& state, uint32_t index, double now) {
  Cohort& cohort = state.cohorts[index];
  cohort.stage = Cohort::Stage::kIdle;
  ReservedPlan reserved =
      ReservePages(PlanVerify(state.options, state.slots, index, cohort.proposals), &state.slots);
  for (auto& sequence : reserved.preempted) state.out.ReportPreempted(std::move(sequence));
  cohort.proposals.resize(state.slots.size());
  VerifyBatch batch;
  batch.cohort = index;
  batch.session = state.slots.verifier().session();
  batch.begun_at = now;
  batch.sent_at = now;
  SendToVerifier send{batch.session, {}};
  v1::Verify* verify = send.command.mutable_verify();
  for (const VerifyPlan& plan : reserved.plans) {
    batch.items.push_back(
        BuildItem(state, plan, &cohort.proposals[plan.slot], verify->add_items()));
    batch.rows += plan.num_tokens + plan.num_drafted;
    batch.attended += Attended(batch.items.back().begin, plan.num_tokens + plan.num_drafted);
    if (plan.num_tokens > 1) batch.prompt_rows += plan.num_tokens;
  }
  // The remaining proposals belong to slots that were canceled, preempted or short of pages
  // meanwhile. They are dropped unjudged, whichever tokens were drawn.
  for (Proposal& proposal : cohort.proposals) Release(state, &proposal);
  cohort.proposals.clear();
  if (batch.items.empty()) return;
  if (std::optional<v1::UpdateSlots> updates = TakeUpdates(state, kVerifierPeer, /*rides=*/true)) {
    *verify->mutable_update_slots() = *std::move(updates);
  }
  batch.id = state.workers.NextCommandId();
  send.command.set_id(batch.id);
  state.out.commands.push_back(std::move(send));
  state.verify = std::move(batch);
  cohort.stage = Cohort::Stage::kVerifying;
  state.next_cohort = (index + 1) % static_cast<uint32_t>(state.cohorts.size());
}

void OnVerify(RoundState& state, v1::VerifyReply& reply, double now) {
  if (absl::Status status = CheckVerify(state, *state.verify, reply); !status.ok()) {
    return DropForBrokenRule(state, kVerifierPeer, status, now);
  }
  VerifyBatch batch = *std::exchange(state.verify, std::nullopt);
  state.cohorts[batch.cohort].stage = Cohort::Stage::kIdle;
  state.slots.verifier().pages().Reported(reply.num_free_pages());
  const double compute = reply.compute_seconds();
  const double propose = reply.propose_seconds();
  const double round_trip = std::max(now - batch.sent_at, compute + propose);
  state.verifier_times.num_asking = static_cast<uint32_t>(
      std::count_if(batch.items.begin(), batch.items.end(),
                    [](const auto& item) { return item.proposal_limits.has_value(); }));
  const VerifyCost cost = CostOf(batch, reply, now);
  PriceDrafts(state, reply, cost, &batch);
  bool decodes = false;  // for a client
  for (size_t i = 0; i < batch.items.size(); ++i) {
    VerifyBatch::Item& item = batch.items[i];
    if (item.proposal.ring.has_value()) {
      state.workers.ring(item.proposal.peer).Release(*item.proposal.ring);
    }
    Sequence* sequence = state.slots.Find(item.slot, item.serial);
    if (sequence == nullptr) {  // canceled or preempted meanwhile
      NoteProgressOfCanceled(state, reply.results(static_cast<int>(i)).state(), &item.witness);
      continue;
    }
    sequence->account.Drafted(propose, propose);
    sequence->account.Verified(round_trip - propose, compute);
    decodes = decodes || (item.end - item.begin == 1 && item.sample && !sequence->is_replay());
    TakeVerdict(state, item, *reply.mutable_results(static_cast<int>(i)), now);
  }
  // After the verdicts: what the verifier refused to open is none of this router's.
  if (reply.has_num_open_slots()) NoteOpenSlots(state, reply.num_open_slots());
  if (decodes) TellRound(state, batch, reply, round_trip, now);
  ObserveVerify(state, batch, reply, cost);
}

void OnVerifierLost(RoundState& state, double heard_at, double now) {
  ++state.out.counts.losses[Worker::kVerifier];
  for (Cohort& cohort : state.cohorts) {
    cohort.proposals.clear();  // after a rebuild they are drafted anew
    cohort.waiting.clear();
    cohort.search = 0;
    if (cohort.stage != Cohort::Stage::kProposing) cohort.stage = Cohort::Stage::kIdle;
  }
  state.slots.verifier().Lose();
  if (!state.verify.has_value()) return;
  // The outcome of the batch is not known, so the round may be drawn again.
  VerifyBatch lost = *std::exchange(state.verify, std::nullopt);
  state.out.Log(LogLine::Level::kInfo, absl::StrCat("verifier: lost while it computed ", lost.rows,
                                                    " rows of ", lost.items.size(), " slots",
                                                    lost.prompt_rows > 0 ? ", with prompts" : ""));
  for (VerifyBatch::Item& item : lost.items) {
    const uint32_t num_rows = item.end - 1;
    Sequence* sequence = state.slots.Find(item.slot, item.serial);
    if (sequence == nullptr) {  // canceled or preempted meanwhile
      item.witness.faults.VerifierLost(num_rows, heard_at, now);
      state.out.ReportPrompt(item.witness.Report());
      continue;
    }
    sequence->faults.VerifierLost(num_rows, heard_at, now);
    if (!sequence->prompt_is_proven()) state.out.ReportPrompt(sequence->witness().Report());
    const int num_lost = sequence->faults.verifiers_lost();
    if (num_lost < state.options.max_lost_rounds) continue;
    state.out.LogSlot(state.slots, LogLine::Level::kWarning, item.slot,
                      absl::StrCat("verifier: died ", num_lost,
                                   " times in a row while computing the request, which is given "
                                   "up"));
    state.out.reports.push_back({PodReport::Kind::kSuspect, state.slots.Vacate(item.slot)});
  }
}

}  // namespace tandem
