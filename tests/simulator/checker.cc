#include "tests/simulator/checker.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"

namespace tandem::simulator {
namespace {

// Largest number of sessions that a router may open with one worker of a pod in a second. It pauses
// at least 50 ms between attempts.
constexpr size_t kMostSessionsASecond = 25;

bool Same(const v1::RingReference& a, const v1::RingReference& b) {
  return a.ring_epoch() == b.ring_epoch() && a.entry() == b.entry() && a.sequence() == b.sequence();
}

// Whether these are not the heads that a verifier begins with.
bool HeadsAreOthers(const v1::SelfDrafter& drafter) {
  return !drafter.name().empty() && drafter.heads() != FakeHeads::kFirst;
}

}  // namespace

Checker::Checker(const Scenario* scenario, const testing::ToyTokenizer* tokenizer, Peek peek)
    : scenario_(scenario), tokenizer_(tokenizer), peek_(std::move(peek)) {}

void Checker::Fail(const std::string& invariant, const std::string& what) {
  if (!finding_.has_value()) finding_ = Finding{scenario_->seed, invariant, what, now_};
}

// ---------------------------------------------------------------- what happens

void Checker::OnRouterStarted(RouterId router) { routers_[router].verifier_seen_at = now_; }

void Checker::OnRouterDied(RouterId router) {
  for (auto& [id, call] : calls_) {
    if (call.router != router || !call.live()) continue;
    call.abandoned = true;
    --num_live_;
  }
}

void Checker::OnRequest(RouterId router, CallId id, const ClientPlan& plan, uint64_t capacity) {
  Call& call = calls_[id];
  call.router = router;
  call.plan = plan;
  ++num_live_;
  if (capacity == 0) return;
  if (plan.prompt_len() + 1 > capacity) {
    call.cannot_fit = true;
    return;
  }
  const int32_t room = static_cast<int32_t>(capacity) - static_cast<int32_t>(plan.prompt_len());
  if (room >= plan.request.max_tokens) return;
  call.plan.request.max_tokens = room;
  FillUndisturbed(scenario_->pair, *tokenizer_, &call.plan);
}

void Checker::OnCancel(CallId id) {
  Call& call = calls_.at(id);
  if (!call.live()) return;
  See(Sight::kCanceled);
  call.canceled = true;
  --num_live_;
}

void Checker::OnStop(RouterId router) {
  routers_[router].draining = true;
  routers_[router].stopped = true;
}

void Checker::OnRoster(RouterId id, const DraftRoster& roster) {
  Router& router = routers_[id];
  ++router.roster_epoch;
  if (roster.canary() != router.roster.canary()) router.trial_began_at = now_;
  for (auto& [pod_id, pod] : router.pods) {
    for (auto& [session_id, session] : pod.sessions) {
      if (session.peer == kVerifierPeer) continue;
      const size_t number = DraftModelOf(session.peer);
      const bool is_same =
          roster.has(number) && roster.place(number).folder == router.roster.place(number).folder;
      if (!is_same) session.unwanted = true;
    }
  }
  router.roster = roster;
}

void Checker::OnExcuse(RouterId router, Worker, SessionId session, Excuse excuse) {
  Pod& pod = routers_[router].PodOfSession(session);
  pod.sessions[session].excuses |= excuse;
  pod.ring_may_fail = true;
}

void Checker::EndSession(Router& router, SessionId id, Session& session) {
  if (!session.open) return;
  Pod& pod = router.PodOfSession(id);
  session.open = false;
  for (const auto& [call, rows] : session.answered_wrongly) NoteDeath(router, id, call, rows);
  session.answered_wrongly.clear();
  // A ring ends when either worker's session ends.
  if (session.peer == kVerifierPeer) {
    pod.rings.clear();
    pod.new_rings.clear();
  } else {
    pod.rings.erase(session.peer);
    ++router.roster_epoch;
  }
  if (!session.batch.has_value()) return;
  for (const BatchItem& item : session.batch->items) {
    if (!session.batch->is_verify) continue;
    NoteDeath(router, id, item.call, item.end - 1);
    SettleRows(pod, item, nullptr);
  }
  session.batch.reset();
}

void Checker::SettleRows(Pod& pod, const BatchItem& item, const v1::VerifyResult* result) {
  const auto drafter = pod.sessions.find(item.drafter);
  if (drafter == pod.sessions.end()) return;
  SlotTrack& slot = drafter->second.slots[item.slot];
  if (slot.call != item.call || slot.closed || !slot.rows.has_value()) return;
  slot.rows->awaits_verdict = false;
  if (result == nullptr) return;
  // The draft model has rows of the chain that begins its trees, and none of siblings.
  uint32_t num_of_chain = result->path().empty() ? result->num_accepted() : 0;
  for (const uint32_t node : result->path()) num_of_chain += node == num_of_chain ? 1 : 0;
  if (num_of_chain < result->num_accepted()) See(Sight::kSiblingAccepted);
  slot.rows->committed = std::min(slot.rows->held, slot.rows->committed + num_of_chain);
}

void Checker::OnSessionLost(RouterId router, Worker, SessionId session_id) {
  Session* session = routers_[router].Find(session_id);
  if (session == nullptr) return;
  See(Sight::kSessionLost);
  EndSession(routers_[router], session_id, *session);
}

void Checker::OnPoisonDeath(RouterId router, SessionId session_id, uint64_t command_id,
                            const ClientPlan& plan) {
  // The network may repeat a batch that was answered already. A batch that was refused at first may
  // then be executed after all. The router cannot know the cause of such a verifier's death.
  const Session* session = routers_[router].Find(session_id);
  if (session != nullptr && session->answered.count(command_id) > 0) return;
  const int deaths = ++poison_deaths_[plan.index];
  if (plan.poison == 1 && deaths > scenario_->engine.max_lost_rounds) {
    Fail("poison", absl::StrCat("client ", plan.index, " killed ", deaths, " verifiers"));
  }
}

void Checker::OnExecuted(StreamId stream, Worker worker,
                         const std::vector<FakeWorker::Execution>& executed) {
  for (const FakeWorker::Execution& execution : executed) {
    auto& [epoch, number] = executed_[{stream, worker, execution.slot}];
    if (execution.epoch < epoch) {
      Fail("epochs", absl::StrCat("slot ", execution.slot, ": the ", WorkerName(worker),
                                  " worker went from epoch ", epoch, " back to ", execution.epoch));
    }
    if (execution.number <= number) {
      Fail("numbers",
           absl::StrCat("slot ", execution.slot, ": the ", WorkerName(worker),
                        " worker executed command ", execution.number, " after ", number));
    }
    epoch = execution.epoch;
    number = execution.number;
  }
}

void Checker::OnComplaints(RouterId router, Worker worker, SessionId session_id,
                           const std::vector<std::string>& complaints) {
  if (complaints.empty()) return;
  if (complaints.front().rfind("worker:", 0) == 0) Fail("replay", complaints.front());
  const Session* session = routers_[router].Find(session_id);
  if (session == nullptr || Excused(*session, 0xff)) return;
  Fail("protocol", absl::StrCat("the ", WorkerName(worker), " worker: ", complaints.front()));
}

bool Checker::IsOver(CallId call) const { return !calls_.at(call).live(); }

std::string Checker::LiveCalls() const {
  std::string text;
  for (const auto& [id, call] : calls_) {
    if (!call.live()) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", "call ", id, " (router ", call.router,
                    ", client ", call.plan.index, ", ", call.emitted, " tokens)");
  }
  return text;
}

// ---------------------------------------------------------------- replies

void Checker::OnReply(RouterId router_id, SessionId session_id, const WorkerReply& reply) {
  Session* found = routers_[router_id].Find(session_id);
  if (found == nullptr || !found->open) return;
  Session& session = *found;
  Pod& pod = routers_[router_id].PodOfSession(session_id);
  if (const auto* draft = std::get_if<v1::DraftReply>(&reply)) {
    const bool of_batch = session.batch.has_value() && session.batch->id == draft->id();
    if (draft->has_propose() && of_batch) {
      OnProposeReply(pod, session_id, session, draft->propose());
    }
    return;
  }
  const auto& verifier = std::get<v1::VerifierReply>(reply);
  const bool of_batch = session.batch.has_value() && session.batch->id == verifier.id();
  if (verifier.has_set_heads()) {
    session.loads_heads = verifier.set_heads().loading();
    session.has_other_heads = HeadsAreOthers(verifier.set_heads().self_drafter());
  }
  if (verifier.has_verify()) {
    if (verifier.verify().has_self_drafter()) {
      session.has_other_heads = HeadsAreOthers(verifier.verify().self_drafter());
    }
    const bool proposes =
        std::any_of(verifier.verify().results().begin(), verifier.verify().results().end(),
                    [](const auto& result) { return result.proposal().token_ids_size() > 0; });
    if (proposes && session.has_other_heads) See(Sight::kSwappedHeads);
    if (session.loads_heads) See(Sight::kHeadsBeingLoaded);
  }
  if (verifier.has_verify() && of_batch) {
    session.answered.insert(verifier.id());
    OnVerifyReply(pod, session, verifier.verify());
  }
  if (const auto asked = pod.new_rings.find(verifier.id());
      verifier.has_create_ring() && asked != pod.new_rings.end()) {
    pod.rings[asked->second].epoch = verifier.create_ring().ring_epoch();
    pod.new_rings.erase(asked);
  }
}

void Checker::OnProposeReply(Pod& pod, SessionId session_id, Session& session,
                             const v1::ProposeReply& reply) {
  const Batch batch = *std::move(session.batch);
  session.batch.reset();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    const bool answered = static_cast<int>(i) < reply.results_size();
    const v1::ProposeResult* result =
        answered ? &reply.results(static_cast<int>(i)) : &v1::ProposeResult::default_instance();
    const bool drafted = answered && result->draft_token_ids_size() > 0;
    if (Ring* ring = item.ring.has_value() ? pod.RingOf(item.ring->ring_epoch()) : nullptr) {
      if (drafted) {
        ring->credits[item.ring->entry()].holder = RingCredit::Holder::kRouter;
      } else {
        ring->credits.erase(item.ring->entry());
      }
    }
    if (answered && result->state().code() == v1::WORKER_CODE_ABORTED &&
        !Excused(session, kLossy | kRowsLost | kBadReply)) {
      Fail("agreement",
           absl::StrCat("the draft worker aborts without a reason: ", result->state().message()));
    }
    SlotTrack& slot = session.slots[item.slot];
    slot.rows.reset();
    if (answered && result->state().code() == v1::WORKER_CODE_OK) {
      slot.rows = DraftRows{item.end, result->state().cached_len(), drafted};
    }
    if (drafted) {
      pod.proposals[item.call] = {
          session_id,
          item.end,
          {result->draft_token_ids().begin(), result->draft_token_ids().end()},
          {result->parents().begin(), result->parents().end()},
          item.ring};
    } else {
      pod.proposals.erase(item.call);
    }
  }
}

void Checker::SeePrompt(const BatchItem& item, const v1::VerifyResult& result, const Call& call) {
  See(Sight::kPromptInPieces);
  if (result.prompt_logprobs_size() > 0 && call.num_scores > 0) See(Sight::kScoredInPieces);
  if (item.end <= call.num_scores) See(Sight::kScoredBefore);
}

void Checker::OnVerifyReply(Pod& pod, Session& session, const v1::VerifyReply& reply) {
  const Batch batch = *std::move(session.batch);
  session.batch.reset();
  session.answered_wrongly.clear();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    if (Excused(session, kBadReply)) session.answered_wrongly.emplace_back(item.call, item.end - 1);
    if (Ring* ring = item.ring.has_value() ? pod.RingOf(item.ring->ring_epoch()) : nullptr) {
      ring->credits.erase(item.ring->entry());
    }
    const bool is_answered = static_cast<int>(i) < reply.results_size();
    if (item.drafter != 0) {
      if (is_answered && !Excused(session, kBadReply)) {
        SettleRows(pod, item, &reply.results(static_cast<int>(i)));
      } else {  // the router may believe a wrong answer, or none
        pod.sessions[item.drafter].slots[item.slot].rows.reset();
      }
    }
    if (!is_answered) continue;
    const v1::VerifyResult& result = reply.results(static_cast<int>(i));
    Call& call = calls_.at(item.call);
    switch (result.state().code()) {
      case v1::WORKER_CODE_OK:
        call.aborts = 0;
        if (result.num_cached_tokens() > 0) See(Sight::kCacheHit);
        if (item.sample) NoteHints(item, result, Excused(session, kBadReply), &call);
        if (!item.sample) SeePrompt(item, result, call);
        for (int node = 0; node < result.path_size(); ++node) {
          if (result.path(node) == static_cast<uint32_t>(node)) continue;
          See(Sight::kRowsMoved);
          break;
        }
        if (!result.ring_error().empty()) {
          See(Sight::kRingError);
        } else if (item.num_drafts > 0) {
          See(result.num_accepted() == item.num_drafts ? Sight::kDraftAccepted
                                                       : Sight::kDraftRejected);
          if (item.ring.has_value()) See(Sight::kRingBlock);
        } else if (item.sample) {
          See(Sight::kPlainRound);
        }
        if (const uint32_t rows = result.state().cached_len(); rows > call.furthest) {
          call.furthest = std::min(rows, static_cast<uint32_t>(call.plan.tokens.size()));
          // A wrong answer is no progress, and neither is what a verifier died of before.
          if (rows > call.rows_of_deaths && !Excused(session, kBadReply)) ForgetDeaths(item.call);
        }
        if (!result.ring_error().empty() && !pod.ring_may_fail) {
          Fail("ring", absl::StrCat("a block is dropped without a reason: ", result.ring_error()));
        }
        break;
      case v1::WORKER_CODE_ABORTED:
        ++call.aborts;
        See(Sight::kAborted);
        if (!Excused(session, kLossy | kRowsLost | kBadReply)) {
          Fail("agreement",
               absl::StrCat("the verifier aborts without a reason: ", result.state().message()));
        }
        break;
      case v1::WORKER_CODE_NON_FINITE_LOGITS:
        call.non_finite = true;
        break;
      case v1::WORKER_CODE_RESOURCE_EXHAUSTED:
        See(Sight::kPoolExhausted);
        break;
      default:
        call.refused_otherwise = true;
    }
  }
}

// ---------------------------------------------------------------- commands

void Checker::OnCommands(RouterId id, const Fleet& fleet, const EngineCommands& commands) {
  Router& router = routers_[id];
  for (const EngineCommand& command : commands) {
    if (const auto* open = std::get_if<OpenSession>(&command)) {
      Pod& pod = router.PodOfSession(open->session);
      if (open->session <= pod.last_session) {
        Fail("sessions",
             absl::StrCat("session ", open->session, " is opened after ", pod.last_session));
      }
      pod.last_session = open->session;
      Session& session = pod.sessions[open->session];
      session.peer = open->peer;
      if (open->peer != kVerifierPeer && !router.roster.has(DraftModelOf(open->peer))) {
        Fail("roster", absl::StrCat("session ", open->session,
                                    " is with a draft model that is not "
                                    "in the roster"));
      }
      for (const auto& [other_id, other] : pod.sessions) {
        if (other_id != open->session && other.open && other.peer == open->peer) {
          Fail("sessions", absl::StrCat("session ", open->session, " is opened beside ", other_id));
        }
      }
      pod.opened_at.push_back(now_);
      const auto recent = std::count_if(pod.opened_at.begin(), pod.opened_at.end(),
                                        [&](double at) { return at > now_ - 1; });
      if (static_cast<size_t>(recent) > 2 * kMostSessionsASecond) {
        Fail("storm", absl::StrCat(recent, " sessions are opened in a second"));
      }
    } else if (const auto* close = std::get_if<CloseSession>(&command)) {
      Session* session = router.Find(close->session);
      if (session == nullptr || !session->open) {
        Fail("sessions", absl::StrCat("session ", close->session, " is closed, and is not open"));
        continue;
      }
      if (session->unwanted && session->batch.has_value()) See(Sight::kUnloadedWhileDrafting);
      if (!Excused(*session, 0xff) && !session->unwanted) {
        Fail("sessions", absl::StrCat("a sound session with the ", WorkerName(close->worker),
                                      " worker is given up"));
      }
      See(Sight::kSessionGivenUp);
      EndSession(router, close->session, *session);
    } else if (const auto* draft = std::get_if<SendToDrafter>(&command)) {
      OnSend(router, id, draft->session, Worker::kDrafter, draft->command.id(), &draft->command,
             nullptr);
    } else if (const auto* verifier = std::get_if<SendToVerifier>(&command)) {
      OnSend(router, id, verifier->session, Worker::kVerifier, verifier->command.id(), nullptr,
             &verifier->command);
    } else if (const auto* ping = std::get_if<SendPing>(&command)) {
      const Session* session = router.Find(ping->session);
      if (session == nullptr || !session->open) {
        Fail("sessions", absl::StrCat("session ", ping->session, " is pinged, and is not open"));
      }
    } else if (const auto* write = std::get_if<WriteResponse>(&command)) {
      CheckWrite(write->response, write->call);
    } else if (const auto* finish = std::get_if<FinishCall>(&command)) {
      CheckFinish(router, fleet, *finish);
    } else if (const auto* give_up = std::get_if<GiveUp>(&command)) {
      Fail("status", absl::StrCat("the router gives up: ", std::string(give_up->status.message())));
    } else if (const auto* line = std::get_if<LogLine>(&command)) {
      if (line->level == LogLine::Level::kError) Fail("audit", line->text);
    }
    if (finding_.has_value()) return;
  }
}

void Checker::OnSend(Router& router, RouterId id, SessionId session_id, Worker worker,
                     uint64_t command_id, const v1::DraftCommand* draft,
                     const v1::VerifierCommand* verifier) {
  Session* found = router.Find(session_id);
  if (found == nullptr || !found->open || KindOf(found->peer) != worker) {
    return Fail("sessions", absl::StrCat("a command goes to session ", session_id, " of the ",
                                         WorkerName(worker), ", which is not open"));
  }
  Session& session = *found;
  Pod& pod = router.PodOfSession(session_id);
  const bool is_batch =
      (draft != nullptr && draft->has_propose()) || (verifier != nullptr && verifier->has_verify());
  if (is_batch && session.batch.has_value()) {
    return Fail("batches", absl::StrCat("the ", WorkerName(worker), " gets batch ", command_id,
                                        " while it has ", session.batch->id));
  }
  if (command_id <= pod.last_command_id) {
    return Fail("numbers", absl::StrCat("command id ", command_id, " after ", pod.last_command_id));
  }
  pod.last_command_id = command_id;
  if (draft != nullptr) {
    if (draft->has_attach()) {
      session.model = draft->attach().model();
      if (session.model != router.roster.place(DraftModelOf(session.peer)).folder) {
        Fail("roster",
             absl::StrCat("session ", session_id, " asks for the model \"", session.model, "\""));
      }
    }
    if (draft->has_propose()) {
      CheckPropose(router, id, session_id, session, command_id, draft->propose());
    } else if (draft->has_update_slots()) {
      CheckUpdates(router, id, session_id, session, draft->update_slots(), false);
    }
    return;
  }
  if (verifier->has_verify()) {
    CheckVerify(router, id, session_id, session, command_id, verifier->verify());
  } else if (verifier->has_update_slots()) {
    CheckUpdates(router, id, session_id, session, verifier->update_slots(), false);
  } else if (verifier->has_create_ring()) {
    const PeerId drafter = kDrafterPeer + verifier->create_ring().draft_model_number();
    pod.rings[drafter] = Ring();
    pod.rings[drafter].entries = verifier->create_ring().entries();
    pod.new_rings[command_id] = drafter;
  }
}

void Checker::CheckUpdates(Router& router, RouterId id, SessionId session_id, Session& session,
                           const v1::UpdateSlots& update, bool rides) {
  for (const v1::SlotPoint& at : update.rollbacks()) {
    CheckRollback(router, id, session_id, session, at, rides);
    if (finding_.has_value()) return;
  }
  for (const v1::SlotClose& close : update.closes()) {
    SlotTrack& slot = session.slots[close.slot()];
    if (!slot.seen || slot.epoch != close.slot_epoch() || slot.closed) {
      Fail("slots", absl::StrCat("slot ", close.slot(), " is closed in epoch ", close.slot_epoch(),
                                 ", and is ", slot.closed ? "closed" : "open", " in ", slot.epoch));
    }
    slot.closed = true;
    slot.rows.reset();
  }
}

void Checker::CheckRollback(Router& router, RouterId id, SessionId session_id, Session& session,
                            const v1::SlotPoint& at, bool rides) {
  const auto fail = [&](const std::string& what) {
    Fail("rollbacks", absl::StrCat(PeerName(session.peer), ", slot ", at.slot(), ", epoch ",
                                   at.slot_epoch(), ", to ", at.length(), " rows: ", what));
  };
  if (session.peer == kVerifierPeer) return fail("the verifier rolls back of itself");
  if (session.batch.has_value()) return fail("is sent beside a batch");
  const CallId call = CheckPoint(id, session_id, session, at, nullptr);
  if (call == 0) return;
  See(rides ? Sight::kRolledBack : Sight::kRolledBackAlone);
  Pod& pod = router.PodOfSession(session_id);
  if (IsJudged(pod, session_id, call)) return fail("some of the rows are being judged");
  // If the router has a block with these rows, the block must not be judged any more. A block of
  // another draft model may be.
  const auto proposal = pod.proposals.find(call);
  if (proposal != pod.proposals.end() && proposal->second.session == session_id) {
    pod.proposals.erase(proposal);
  }
  std::optional<DraftRows>& rows = session.slots[at.slot()].rows;
  if (session.excuses != 0 || !rows.has_value()) return rows.reset();
  if (at.length() != rows->committed) {
    return fail(absl::StrCat("holds ", rows->held, " rows, ", rows->committed,
                             " of them of committed tokens"));
  }
  if (rows->held <= rows->committed) return fail("holds no more");
  const uint32_t page_tokens = scenario_->drafter.page_tokens;
  const auto pages_of = [&](uint32_t n) { return (n + page_tokens - 1) / page_tokens; };
  if (!rides && pages_of(rows->held) == pages_of(rows->committed)) {
    return fail("travels alone, and returns no page");
  }
  rows = DraftRows{rows->committed, rows->committed, false};
}

void Checker::CheckNoneIsDue(const Session& session) {
  if (session.excuses != 0) return;
  for (const auto& [slot_id, slot] : session.slots) {
    if (slot.closed || !slot.rows.has_value() || slot.rows->awaits_verdict ||
        slot.rows->held <= slot.rows->committed) {
      continue;
    }
    Fail("rollbacks",
         absl::StrCat("slot ", slot_id, " holds ", slot.rows->held, " rows, ", slot.rows->committed,
                      " of them of committed tokens, and is not rolled back"));
  }
}

CallId Checker::CheckPoint(RouterId id, SessionId session_id, Session& session,
                           const v1::SlotPoint& at, const v1::SlotOpen* open) {
  const auto fail = [&](const std::string& invariant, const std::string& what) {
    Fail(invariant, absl::StrCat(PeerName(session.peer), ", slot ", at.slot(), ", epoch ",
                                 at.slot_epoch(), ", command ", at.command_number(), ": ", what));
    return CallId{0};
  };
  SlotTrack& slot = session.slots[at.slot()];
  if (slot.seen && at.slot_epoch() < slot.epoch) return fail("epochs", "an old epoch");
  if (at.command_number() <= slot.number) return fail("numbers", "an old number");
  if (!slot.seen || at.slot_epoch() > slot.epoch) {
    if (open == nullptr) return fail("epochs", "a new epoch without `open`");
    slot.seen = true;
    slot.closed = false;
    slot.epoch = at.slot_epoch();
    slot.call = 0;
    slot.rows.reset();
  } else if (slot.closed) {
    return fail("epochs", "this epoch was closed");
  }
  slot.number = at.command_number();
  if (open != nullptr) {
    if (const auto broken = CheckOpen(id, session_id, session, slot, *open); broken.has_value()) {
      return fail(broken->first, broken->second);
    }
  }
  if (slot.call == 0) return fail("epochs", "nobody's");
  const Call& call = calls_.at(slot.call);
  const bool may_be_replayed = call.completed && scenario_->engine.audit_fraction > 0;
  if (!call.live() && !may_be_replayed) return fail("calls", "work for a call that is over");
  if (at.length() > call.committed_len() || at.prefix_hash() != call.plan.hashes[at.length()]) {
    return fail("commands", absl::StrCat("length ", at.length(), " of ", call.committed_len(),
                                         " with another hash"));
  }
  // Look at the rows that the worker really holds. No message for the slot is under way, except
  // perhaps a close.
  if (session.excuses != 0) return slot.call;
  const FakeSlots* slots = peek_(id, KindOf(session.peer), session_id);
  if (slots == nullptr || at.slot() >= slots->slots().size()) return slot.call;
  const FakeSlot& held = slots->slots()[at.slot()];
  if (!held.open || held.epoch != at.slot_epoch()) {
    if (open == nullptr) return fail("agreement", "the worker does not know this epoch");
    return slot.call;
  }
  const bool is_prefix =
      at.length() < held.hashes.size() && held.hashes[at.length()] == at.prefix_hash();
  const bool is_all = session.peer != kVerifierPeer || at.length() == held.tokens.size();
  if (!is_prefix || !is_all) {
    return fail("agreement", absl::StrCat("the router believes ", at.length(),
                                          " rows, the worker holds ", held.tokens.size()));
  }
  return slot.call;
}

std::optional<std::pair<std::string, std::string>> Checker::CheckOpen(RouterId id,
                                                                      SessionId session_id,
                                                                      const Session& session,
                                                                      SlotTrack& slot,
                                                                      const v1::SlotOpen& open) {
  using Broken = std::pair<std::string, std::string>;
  // The owner is the newest call of that client at this router, because ids of calls grow.
  CallId owner = 0;
  for (const auto& [call_id, call] : calls_) {
    if (call.router == id && call.plan.index + 1 == open.sampling().seed()) owner = call_id;
  }
  if (owner == 0) return Broken("calls", "opened for nobody");
  if (slot.call != 0 && slot.call != owner) {
    return Broken("epochs", "opened for another request in the same epoch");
  }
  slot.call = owner;
  v1::SlotOpen told = open;
  told.set_audit(false);  // this field is the router's own choice
  if (calls_.at(owner).completed) {
    // A replay of the audit must be computed again, without any page of a client.
    const std::string salt = absl::StrCat("\x01replay ", owner);
    if (told.cache_salt() != salt) return Broken("commands", "a replay that may share a page");
    told.set_cache_salt(calls_.at(owner).plan.request.open.cache_salt());
  }
  v1::SlotOpen asked = calls_.at(owner).plan.request.open;
  // Only a verifier scores a prompt, and only for a client.
  if (session.peer != kVerifierPeer || calls_.at(owner).completed) asked.clear_prompt_logprobs();
  if (told.SerializeAsString() != asked.SerializeAsString()) {
    return Broken("commands", "`open` is not what the client asked for");
  }
  if (session.peer == kVerifierPeer) {
    SeePlace(routers_[id], PodOf(session_id), &calls_.at(owner));
  }
  return std::nullopt;
}

void Checker::SeePlace(const Router& router, uint32_t pod, Call* call) {
  if (!call->live()) return;  // a replay of the audit
  if (call->pod.has_value()) {
    call->moved = call->moved || (*call->pod != pod && call->emitted > 0);
  } else if (std::any_of(router.pods.begin(), router.pods.end(), [pod](const auto& other) {
               return other.first != pod && other.second.drains;
             })) {
    See(Sight::kPlacedBesideDrain);
  }
  if (call->pod != pod) {
    call->placed_at = now_;
    call->canary_drafted.reset();  // a pod that gets it back may give it the other arm
  }
  call->pod = pod;
}

void Checker::CheckTokens(CallId id, const v1::SlotPoint& at,
                          const google::protobuf::RepeatedField<int32_t>& token_ids) {
  const Call& call = calls_.at(id);
  const uint32_t end = at.length() + static_cast<uint32_t>(token_ids.size());
  if (end > call.committed_len()) {
    return Fail("commands", absl::StrCat("call ", id, ": tokens up to ", end, " of ",
                                         call.committed_len(), " committed ones"));
  }
  for (uint32_t i = at.length(); i < end; ++i) {
    if (token_ids[static_cast<int>(i - at.length())] == call.plan.tokens[i]) continue;
    return Fail("commands", absl::StrCat("call ", id, ": token ", i, " is told as ",
                                         token_ids[static_cast<int>(i - at.length())], ", and is ",
                                         call.plan.tokens[i]));
  }
}

void Checker::TakeRingEntry(Ring& ring, const v1::RingReference& reference) {
  const std::string name =
      absl::StrCat("entry ", reference.entry(), " of epoch ", reference.ring_epoch(), ", sequence ",
                   reference.sequence());
  if (reference.ring_epoch() != ring.epoch || reference.entry() >= ring.entries) {
    return Fail("ring", absl::StrCat(name, ": the ring is of epoch ", ring.epoch));
  }
  if (reference.sequence() != ++ring.last_sequence) {
    return Fail("ring", absl::StrCat(name, ": the next is ", ring.last_sequence));
  }
  const auto held = ring.credits.find(reference.entry());
  if (held != ring.credits.end() && held->second.holder != RingCredit::Holder::kRouter) {
    return Fail("ring", absl::StrCat(name, ": is in use under ", held->second.sequence));
  }
  ring.credits[reference.entry()] = {RingCredit::Holder::kDrafter, reference.sequence()};
}

bool Checker::IsJudged(const Pod& pod, SessionId drafter, CallId call) {
  for (const auto& [session_id, session] : pod.sessions) {
    if (!session.open || session.peer != kVerifierPeer || !session.batch.has_value()) {
      continue;
    }
    const auto& items = session.batch->items;
    if (std::any_of(items.begin(), items.end(), [&](const BatchItem& item) {
          return item.call == call && item.drafter == drafter;
        })) {
      return true;
    }
  }
  return false;
}

bool Checker::IsVerified(const Router& router, CallId call) {
  for (const auto& [pod_id, pod] : router.pods) {
    for (const auto& [session_id, session] : pod.sessions) {
      if (!session.open || session.peer != kVerifierPeer || !session.batch.has_value()) {
        continue;
      }
      const auto& items = session.batch->items;
      if (std::any_of(items.begin(), items.end(),
                      [call](const BatchItem& item) { return item.call == call; })) {
        return true;
      }
    }
  }
  return false;
}

void Checker::CheckSiblings(CallId call_id, const v1::ProposeItem& item) {
  if (item.num_siblings().empty()) return;
  const GenerationRequest& request = calls_.at(call_id).plan.request;
  const WorkerSessionsOptions& limits = scenario_->engine.workers;
  // A draft of a fixed length is a chain, unless the request says how large a tree may be.
  const bool is_fixed =
      request.draft_length.has_value() || scenario_->engine.draft_length.has_value();
  uint32_t most_nodes = std::min(
      limits.max_tree_nodes, request.max_tree_nodes.value_or(is_fixed ? 0 : limits.max_tree_nodes));
  if (item.has_ring()) most_nodes = std::min(most_nodes, limits.max_draft_length);
  const uint32_t num_nodes =
      std::accumulate(item.num_siblings().begin(), item.num_siblings().end(), item.draft_length());
  const uint32_t widest = *std::max_element(item.num_siblings().begin(), item.num_siblings().end());
  if (item.num_siblings_size() > static_cast<int>(item.draft_length()) || widest > kMaxSiblings ||
      num_nodes > most_nodes) {
    Fail("commands", absl::StrCat("call ", call_id, " drafts a tree of ", num_nodes));
  }
}

void Checker::CheckModel(Router& router, SessionId session_id, Session& session, CallId call_id) {
  session.drafted = true;
  Call& call = calls_.at(call_id);
  const std::string& wanted = call.plan.request.draft_model;
  if (!wanted.empty()) {
    const std::string name = session.model.empty() ? DraftModelName(session.peer) : session.model;
    if (wanted != name) {
      Fail("drafts", absl::StrCat("call ", call_id, " wants drafts of ", wanted, " alone"));
    }
    return;
  }
  const DraftRole role = router.roster.place(DraftModelOf(session.peer)).role;
  const auto& sessions = router.PodOfSession(session_id).sessions;
  const bool is_needed = std::none_of(sessions.begin(), sessions.end(), [&](const auto& entry) {
    const Session& other = entry.second;
    return other.open && other.drafted && other.peer != kVerifierPeer &&
           router.roster.place(DraftModelOf(other.peer)).role == DraftRole::kServing;
  });
  if (role == DraftRole::kStandby && !is_needed) {
    Fail("roster",
         absl::StrCat(PeerName(session.peer), " stands by, and drafts for call ", call_id));
  }
  const std::pair now(router.roster_epoch, PodOf(session_id));
  if (role == DraftRole::kCanary) {
    // A call that went to another pod and came back may have got an arm here since.
    const bool stays = scenario_->num_pods == 1 && call.pod == now.second;
    if (stays && call.placed_at < router.trial_began_at) {
      Fail("roster", absl::StrCat("call ", call_id, " began before the canary that drafts for it"));
    }
    call.canary_drafted = now;
    See(Sight::kCanary);
  } else if (call.canary_drafted == now) {
    Fail("roster", absl::StrCat("call ", call_id, " is one of the canary, and ",
                                PeerName(session.peer), " drafts for it"));
  }
}

void Checker::CheckPropose(Router& router, RouterId id, SessionId session_id, Session& session,
                           uint64_t command_id, const v1::Propose& propose) {
  if (propose.has_update_slots()) {
    CheckUpdates(router, id, session_id, session, propose.update_slots(), true);
  }
  CheckNoneIsDue(session);
  Pod& pod = router.PodOfSession(session_id);
  Batch batch{command_id, false, {}};
  uint32_t rows = 0;
  for (const v1::ProposeItem& item : propose.items()) {
    const CallId call_id =
        CheckPoint(id, session_id, session, item.at(), item.has_open() ? &item.open() : nullptr);
    if (call_id == 0) return;
    CheckTokens(call_id, item.at(), item.token_ids());
    const Call& call = calls_.at(call_id);
    const uint32_t end = item.at().length() + static_cast<uint32_t>(item.token_ids_size());
    rows += static_cast<uint32_t>(item.token_ids_size()) +
            (item.draft_length() > 0 ? item.draft_length() - 1 : 0);
    if (item.draft_length() > 0 && end != call.committed_len()) {
      Fail("commands", absl::StrCat("call ", call_id, " drafts after ", end, " tokens of ",
                                    call.committed_len()));
    }
    if (item.draft_length() > scenario_->engine.workers.max_draft_length) {
      Fail("commands", absl::StrCat("call ", call_id, " drafts ", item.draft_length()));
    }
    CheckSiblings(call_id, item);
    if (item.draft_length() > 0) CheckModel(router, session_id, session, call_id);
    // A draft that is made while the verifier has the call would be useless.
    if (item.draft_length() > 0 && IsVerified(router, call_id)) {
      Fail("batches", absl::StrCat("call ", call_id, " drafts while it is verified"));
    }
    const bool wants_ring = call.plan.request.needs_draft_log_probs() && item.draft_length() > 0;
    if (wants_ring != item.has_ring()) {
      Fail("ring", absl::StrCat("call ", call_id, wants_ring ? " lacks" : " needs no", " entry"));
    }
    if (item.has_ring()) TakeRingEntry(pod.rings[session.peer], item.ring());
    pod.proposals.erase(call_id);
    batch.items.push_back({item.at().slot(), call_id, item.at().length(), end,
                           item.has_ring() ? std::optional(item.ring()) : std::nullopt,
                           item.draft_length(), false, 0});
  }
  if (rows > scenario_->engine.step_rows) {
    Fail("rows",
         absl::StrCat("a Propose of ", rows, " rows; step_rows is ", scenario_->engine.step_rows));
  }
  session.batch = std::move(batch);
  SeeOverlap(pod, Worker::kVerifier);
}

void Checker::SeeOverlap(const Pod& pod, Worker other) {
  for (const auto& [id, session] : pod.sessions) {
    if (session.open && KindOf(session.peer) == other && session.batch.has_value()) {
      See(Sight::kWorkersOverlap);
    }
  }
}

void Checker::NoteHints(const BatchItem& item, const v1::VerifyResult& result, bool may_be_wrong,
                        Call* call) {
  if (result.has_proposal()) {
    call->former_self_draft = may_be_wrong ? call->self_draft : SelfDraft();
    call->self_draft = {result.proposal(), item.end + result.num_accepted() + 1};
  }
  const uint32_t num_successors = call->plan.request.open.num_successors();
  for (uint32_t i = 0; i < static_cast<uint32_t>(result.successors_size()); ++i) {
    const uint32_t place = item.end - 1 + i / num_successors;
    if (place >= call->plan.tokens.size()) return;
    call->successors.emplace(call->plan.tokens[place], result.successors(static_cast<int>(i)));
  }
}

bool Checker::IsProposedByVerifier(const Call& call, const v1::VerifyItem& item) {
  return IsOfSelfDraft(call, call.self_draft, item) ||
         IsOfSelfDraft(call, call.former_self_draft, item);
}

bool Checker::IsOfSelfDraft(const Call& call, const SelfDraft& draft, const v1::VerifyItem& item) {
  if (draft.after_len != call.committed_len() || item.has_ring() || !item.sample()) return false;
  const v1::SelfProposal& proposal = draft.proposal;
  const auto parent_of = [](const auto& parents, int i) {
    return parents.empty() ? i - 1 : parents.Get(i);
  };
  std::vector<int> places;  // [i]: where token i of the draft stands in the proposal
  for (int i = 0; i < item.draft_token_ids_size(); ++i) {
    const int parent = parent_of(item.parents(), i);
    const int wanted = parent < 0 ? -1 : places[static_cast<size_t>(parent)];
    int place = 0;
    while (place < proposal.token_ids_size() &&
           (proposal.token_ids(place) != item.draft_token_ids(i) ||
            parent_of(proposal.parents(), place) != wanted)) {
      ++place;
    }
    if (place == proposal.token_ids_size()) return false;
    places.push_back(place);
  }
  return true;
}

// Each token of a draft that was found follows the token before it somewhere in the committed text,
// in the prediction, in the corpus, among the target's favorites after a committed token, or in the
// draft itself, for a loop goes on. Rejected tokens are
// in none of these.
bool Checker::IsFound(const Call& call, const v1::VerifyItem& item) const {
  const GenerationRequest& request = call.plan.request;
  const bool predicts =
      request.drafters.contains(Drafter::kPrediction) && !request.prediction.empty();
  const bool retrieves =
      request.drafters.contains(Drafter::kRetrieval) && scenario_->engine.has_corpus;
  const bool looks_up = predicts || retrieves || request.drafters.contains(Drafter::kSuffix) ||
                        request.drafters.contains(Drafter::kNgram) ||
                        request.drafters.contains(Drafter::kRecycling);
  if (!looks_up || item.has_ring() || !item.sample()) return false;
  std::vector<int32_t> text(call.plan.tokens.begin(),
                            call.plan.tokens.begin() + call.committed_len());
  const auto follows = [](const std::vector<int32_t>& tokens, int32_t first, int32_t second) {
    return std::adjacent_find(tokens.begin(), tokens.end(), [&](int32_t a, int32_t b) {
             return a == first && b == second;
           }) != tokens.end();
  };
  const auto is_in_corpus = [&](int32_t first, int32_t second) {
    return retrieves &&
           std::any_of(scenario_->corpus.begin(), scenario_->corpus.end(),
                       [&](const auto& document) { return follows(document, first, second); });
  };
  const bool begins = call.emitted == 0 && predicts;
  const int32_t last = text.back();
  for (int i = 0; i < item.draft_token_ids_size(); ++i) {
    const int32_t token = item.draft_token_ids(i);
    const int32_t parent = item.parents().empty() ? i - 1 : item.parents(i);
    const int32_t before = parent < 0 ? last : item.draft_token_ids(parent);
    const bool is_first = parent < 0 && begins && token == request.prediction.front();
    if (!is_first && !follows(text, before, token) &&
        !(predicts && follows(request.prediction, before, token)) && !is_in_corpus(before, token) &&
        !call.successors.contains({before, token})) {
      return false;
    }
    if (parent == i - 1) text.push_back(token);  // a loop goes on with itself
  }
  return true;
}

bool Checker::IsProposed(const Pod& pod, CallId call_id, const v1::VerifyItem& item, uint32_t end) {
  const auto proposal = pod.proposals.find(call_id);
  return proposal != pod.proposals.end() && proposal->second.end == end &&
         std::equal(item.draft_token_ids().begin(), item.draft_token_ids().end(),
                    proposal->second.token_ids.begin(), proposal->second.token_ids.end()) &&
         std::equal(item.parents().begin(), item.parents().end(), proposal->second.parents.begin(),
                    proposal->second.parents.end());
}

std::optional<SessionId> Checker::TakeProposal(Pod& pod, CallId call_id, const v1::VerifyItem& item,
                                               uint32_t end) {
  if (!IsProposed(pod, call_id, item, end)) {
    Fail("drafts",
         absl::StrCat("call ", call_id, " is judged with drafts that were not made after its ", end,
                      " tokens"));
    return std::nullopt;
  }
  const auto proposal = pod.proposals.find(call_id);
  const auto& ring = proposal->second.ring;
  if (ring.has_value() != item.has_ring() || (ring.has_value() && !Same(*ring, item.ring()))) {
    Fail("ring", absl::StrCat("call ", call_id, ": its drafts' rows are elsewhere"));
    return std::nullopt;
  }
  const SessionId drafter = proposal->second.session;
  pod.proposals.erase(proposal);
  if (item.has_ring()) {
    Ring& expected = pod.rings[pod.sessions.at(drafter).peer];
    const auto held = expected.credits.find(item.ring().entry());
    if (item.ring().ring_epoch() != expected.epoch || held == expected.credits.end() ||
        held->second.sequence != item.ring().sequence() ||
        held->second.holder != RingCredit::Holder::kRouter) {
      Fail("ring", absl::StrCat("call ", call_id, ": entry ", item.ring().entry(),
                                " is not its block's any more"));
      return std::nullopt;
    }
    held->second.holder = RingCredit::Holder::kVerifier;
  }
  return drafter;
}

void Checker::CheckVerify(Router& router, RouterId id, SessionId session_id, Session& session,
                          uint64_t command_id, const v1::Verify& verify) {
  if (verify.has_update_slots()) {
    CheckUpdates(router, id, session_id, session, verify.update_slots(), true);
  }
  Pod& pod = router.PodOfSession(session_id);
  Batch batch{command_id, true, {}};
  uint32_t decode_rows = 0;
  uint32_t prompt_rows = 0;
  for (const v1::VerifyItem& item : verify.items()) {
    const CallId call_id =
        CheckPoint(id, session_id, session, item.at(), item.has_open() ? &item.open() : nullptr);
    if (call_id == 0) return;
    CheckTokens(call_id, item.at(), item.token_ids());
    const Call& call = calls_.at(call_id);
    const auto num_tokens = static_cast<uint32_t>(item.token_ids_size());
    const auto num_drafts = static_cast<uint32_t>(item.draft_token_ids_size());
    const uint32_t end = item.at().length() + num_tokens;
    if (num_tokens == 1) {
      decode_rows += 1 + num_drafts;
    } else {
      prompt_rows += num_tokens;
    }
    // A replay that gave its slot up leaves its batch behind, and no one reads the answer.
    if (call.live() && IsVerified(router, call_id)) {
      Fail("batches", absl::StrCat("call ", call_id, " is verified by two"));
    }
    if (item.sample() && call.live() && end != call.committed_len()) {
      Fail("commands", absl::StrCat("call ", call_id, " samples after ", end, " tokens of ",
                                    call.committed_len()));
    }
    SessionId drafter = 0;
    const bool is_tree = !item.parents().empty();
    const WorkerSessionsOptions& limits = scenario_->engine.workers;
    const uint32_t most_nodes = std::min(
        limits.max_tree_nodes, call.plan.request.max_tree_nodes.value_or(limits.max_tree_nodes));
    if (num_drafts > (is_tree ? most_nodes : limits.max_draft_length)) {
      Fail("commands", absl::StrCat("call ", call_id, " is judged with ", num_drafts, " drafts"));
    }
    if (num_drafts > 0) {
      // What was found may be what the draft model proposed, and would have rows in the ring then.
      const bool is_of_model = IsProposed(pod, call_id, item, end) &&
                               pod.proposals.at(call_id).ring.has_value() == item.has_ring();
      const bool is_of_verifier = !is_of_model && IsProposedByVerifier(call, item);
      if (is_of_verifier) See(Sight::kSelfDraft);
      if (is_of_verifier || (!is_of_model && IsFound(call, item))) {
        See(Sight::kFoundDraft);
        if (!item.parents().empty()) See(Sight::kTree);
      } else {
        const std::optional<SessionId> maker = TakeProposal(pod, call_id, item, end);
        if (!maker.has_value()) return;
        drafter = *maker;
        const PeerId model = pod.sessions.at(drafter).peer;
        if (model > kDrafterPeer) See(Sight::kOtherModel);
        if (!pod.sessions.at(drafter).model.empty()) See(Sight::kLoadedModel);
        if (is_tree) See(Sight::kModelTree);
      }
    }
    batch.items.push_back({item.at().slot(), call_id, item.at().length(), end,
                           item.has_ring() ? std::optional(item.ring()) : std::nullopt, num_drafts,
                           item.sample(), drafter});
  }
  const uint32_t step_rows = scenario_->engine.step_rows;
  const uint32_t left = step_rows > decode_rows ? step_rows - decode_rows : 0;
  if (prompt_rows > std::max(left, step_rows / 4)) {
    Fail("rows", absl::StrCat("a Verify of ", prompt_rows, " prompt rows beside ", decode_rows,
                              "; step_rows is ", step_rows));
  }
  session.batch = std::move(batch);
  SeeOverlap(pod, Worker::kDrafter);
}

// ---------------------------------------------------------------- clients

void Checker::CheckWrite(const v1::GenerateResponse& response, CallId id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return Fail("calls", absl::StrCat("a write to call ", id));
  Call& call = found->second;
  if (!call.live() || call.completed) {
    return Fail("calls", absl::StrCat("call ", id, " is written to after its end"));
  }
  if (response.request_id() != call.plan.request.request_id ||
      response.sources_size() != response.token_ids_size() ||
      response.logprobs_size() !=
          (call.plan.request.wants_logprobs ? response.token_ids_size() : 0)) {
    return Fail("tokens", absl::StrCat("call ", id, ": request id, sources or logprobs differ"));
  }
  CheckScores(response, id, &call);
  const ToyPair& pair = scenario_->pair;
  for (int i = 0; i < response.token_ids_size(); ++i) {
    const uint32_t place = call.committed_len();
    if (place >= call.plan.tokens.size() || response.token_ids(i) != call.plan.tokens[place]) {
      return Fail("tokens", absl::StrCat("call ", id, ", output ", call.emitted, ": got ",
                                         response.token_ids(i), ", want ",
                                         place >= call.plan.tokens.size()
                                             ? "nothing"
                                             : absl::StrCat(call.plan.tokens[place])));
    }
    if (call.plan.request.wants_logprobs &&
        response.logprobs(i).logprob() !=
            pair.Logprob(call.plan.hashes[place], response.token_ids(i))) {
      return Fail("tokens", absl::StrCat("call ", id, ", output ", call.emitted,
                                         ": the logprob is another token's"));
    }
    if (call.plan.non_finite_at.has_value() && call.emitted >= *call.plan.non_finite_at) {
      return Fail("tokens",
                  absl::StrCat("call ", id, ": a token from logits that were not finite"));
    }
    ++call.sources[response.sources(i)];
    ++call.emitted;
  }
  call.text += response.text();
  if (response.has_completion()) {
    call.completed = true;
    CheckCompletion(response.completion(), call);
  }
}

void Checker::CheckScores(const v1::GenerateResponse& response, CallId id, Call* call) {
  const v1::SlotOpen& open = call->plan.request.open;
  const uint32_t wanted = open.has_prompt_logprobs() ? call->plan.prompt_len() - 1 : 0;
  for (const v1::TokenLogprobs& token : response.prompt_logprobs()) {
    const uint32_t place = ++call->num_scores;
    if (place > wanted ||
        token.logprob() !=
            scenario_->pair.Logprob(call->plan.hashes[place], call->plan.tokens[place]) ||
        token.top_size() != open.prompt_logprobs()) {
      return Fail("prompts", absl::StrCat("call ", id, ", prompt token ", place, " of ",
                                          call->plan.prompt_len(),
                                          ": the logprob is another token's, or not wanted"));
    }
  }
  if ((response.token_ids_size() > 0 || response.has_completion()) && call->num_scores < wanted) {
    Fail("prompts", absl::StrCat("call ", id, " goes on after ", call->num_scores,
                                 " logprobs of its prompt, of ", wanted));
  }
}

void Checker::CheckCompletion(const v1::Completion& completion, const Call& call) {
  const std::string name = absl::StrCat("client ", call.plan.index, ": ");
  if (call.committed_len() != call.plan.tokens.size() || call.text != call.plan.text ||
      completion.finish_reason() != call.plan.finish_reason) {
    return Fail("tokens",
                absl::StrCat(name, "ends with ", call.emitted, " tokens, \"", call.text,
                             "\", want ", call.plan.tokens.size() - call.plan.prompt_len(), ", \"",
                             call.plan.text, "\""));
  }
  const auto count = [&](v1::TokenSource source) {
    const auto found = call.sources.find(source);
    return found == call.sources.end() ? 0 : found->second;
  };
  const int accepted = count(v1::TOKEN_SOURCE_ACCEPTED);
  const int recovered = count(v1::TOKEN_SOURCE_RECOVERED);
  const int bonus = count(v1::TOKEN_SOURCE_BONUS);
  const v1::SpeculationStats& stats = completion.speculation();
  // If a round ends with the request, it may end within the round's accepted tokens.
  const int cut_rounds = stats.num_drafts() - recovered - bonus;
  int accepted_per_position = 0;
  int tested_per_position = 0;
  for (int n : stats.num_accepted_tokens_per_position()) accepted_per_position += n;
  for (int n : stats.num_tested_tokens_per_position()) tested_per_position += n;
  const bool agrees =
      completion.usage().completion_tokens() == static_cast<int>(call.emitted) &&
      completion.usage().prompt_tokens() == static_cast<int>(call.plan.prompt_len()) &&
      completion.usage().cached_prompt_tokens() >= 0 &&
      completion.usage().cached_prompt_tokens() <= static_cast<int>(call.plan.prompt_len()) &&
      completion.seed() == call.plan.request.open.sampling().seed() && completion.lossless() &&
      count(v1::TOKEN_SOURCE_PLAIN) == stats.num_plain_rounds() &&
      stats.num_accepted_tokens() == accepted && accepted_per_position == accepted &&
      stats.num_tested_tokens() == accepted + recovered &&
      tested_per_position == accepted + recovered && (cut_rounds == 0 || cut_rounds == 1) &&
      stats.num_draft_tokens() >= accepted + recovered &&
      (stats.num_draft_tokens() == 0 ||
       std::abs(stats.acceptance_rate() * stats.num_draft_tokens() - accepted) < 1e-9);
  if (!agrees) {
    Fail("statistics", absl::StrCat(name, "completion does not count what was emitted: ",
                                    completion.ShortDebugString()));
  }
}

void Checker::CheckFinish(Router& router, const Fleet& fleet, const FinishCall& finish) {
  const auto found = calls_.find(finish.call);
  if (found == calls_.end() || !found->second.live()) {
    return Fail("calls", absl::StrCat("call ", finish.call, " is finished, and is over"));
  }
  Call& call = found->second;
  if (call.completed != finish.status.ok()) {
    return Fail("status", absl::StrCat("call ", finish.call, " ends with ",
                                       std::string(finish.status.message()), ", completion ",
                                       call.completed ? "sent" : "not sent"));
  }
  if (!finish.status.ok() && finish.emitted_tokens != static_cast<int>(call.emitted)) {
    return Fail("status", absl::StrCat("call ", finish.call, ": ", finish.emitted_tokens,
                                       " tokens are said to be emitted, ", call.emitted, " were"));
  }
  if (const std::string why = WhyNot(router, fleet, finish, call); !why.empty()) {
    return Fail("status", absl::StrCat("call ", finish.call, " ends with \"",
                                       std::string(finish.status.message()), "\": ", why));
  }
  See(SightOf(router, finish, call));
  if (finish.status.ok() && call.moved) See(Sight::kStreamMoved);
  call.finished = true;
  --num_live_;
}

void Checker::NoteDeath(Router& router, SessionId session, CallId id, uint32_t rows) {
  Call& call = calls_.at(id);
  call.rows_of_deaths = std::max(call.rows_of_deaths, rows);
  call.deaths.insert(session);
  router.deaths[call.plan.hashes[call.plan.prompt_len()]].emplace(session, id);
}

void Checker::ForgetDeaths(CallId id) {
  Call& call = calls_.at(id);
  call.deaths.clear();
  std::erase_if(routers_[call.router].deaths[call.plan.hashes[call.plan.prompt_len()]],
                [id](const auto& death) { return death.second == id; });
}

size_t Checker::NumDeaths(Router& router, CallId id) {
  const Call& call = calls_.at(id);
  std::set<SessionId> sessions = call.deaths;
  for (const auto& [session, other] : router.deaths[call.plan.hashes[call.plan.prompt_len()]]) {
    if (other != id) sessions.insert(session);
  }
  return sessions.size();
}

Sight Checker::SightOf(const Router& router, const FinishCall& finish, const Call& call) {
  switch (finish.status.code()) {
    case absl::StatusCode::kUnavailable:
      return router.draining ? Sight::kDraining : Sight::kVerifierGone;
    case absl::StatusCode::kResourceExhausted:
      return call.cannot_fit ? Sight::kCannotFit : Sight::kQueueFull;
    case absl::StatusCode::kAlreadyExists:
      return Sight::kIdTaken;
    case absl::StatusCode::kFailedPrecondition:
      return Sight::kQuarantined;
    case absl::StatusCode::kInternal:
      return call.non_finite ? Sight::kNonFinite : Sight::kAborted;
    default:
      return Sight::kCompleted;
  }
}

std::string Checker::WhyNot(Router& router, const Fleet& fleet, const FinishCall& finish,
                            const Call& call) {
  const uint64_t prompt_hash = call.plan.hashes[call.plan.prompt_len()];
  const double patience = scenario_->engine.verifier_timeout_seconds;
  switch (finish.status.code()) {
    case absl::StatusCode::kOk:
      return "";
    case absl::StatusCode::kUnavailable:
      if (router.draining) return "";
      return now_ - router.verifier_seen_at >= patience - 1e-6
                 ? ""
                 : absl::StrCat("a verifier was there ", now_ - router.verifier_seen_at, " s ago");
    case absl::StatusCode::kResourceExhausted:
      if (call.cannot_fit) return "";
      return call.emitted == 0 && finish.retry_milliseconds > 0 &&
                     fleet.num_waiting() >= scenario_->engine.max_queue
                 ? ""
                 : absl::StrCat(fleet.num_waiting(), " wait, of ", scenario_->engine.max_queue);
    case absl::StatusCode::kAlreadyExists:
      for (const auto& [id, other] : calls_) {
        if (id != finish.call && other.live() && other.router == call.router &&
            other.plan.request.request_id == call.plan.request.request_id) {
          return "";
        }
      }
      return "no other call has that id";
    case absl::StatusCode::kFailedPrecondition:
      if (router.quarantined.count(prompt_hash) > 0) return "";
      if (const size_t deaths = NumDeaths(router, finish.call);
          deaths < static_cast<size_t>(scenario_->engine.max_lost_rounds)) {
        return absl::StrCat("only ", deaths, " verifiers died with its prompt");
      }
      router.quarantined.insert(prompt_hash);
      return "";
    case absl::StatusCode::kInternal:
      return call.non_finite || call.aborts > 3 || call.refused_otherwise ? ""
                                                                          : "nothing went wrong";
    default:
      return "such a status is not foreseen";
  }
}

// ---------------------------------------------------------------- state

void Checker::CheckRing(const Ring& expected, const RingCredits& ring) {
  if (!ring.open()) return;
  size_t in_use = 0;
  size_t at_router = 0;
  for (const auto& [entry, credit] : expected.credits) {
    ++(credit.holder == RingCredit::Holder::kRouter ? at_router : in_use);
  }
  const size_t taken = expected.entries - ring.num_free();
  if (ring.num_free() > expected.entries || taken < in_use || taken > in_use + at_router) {
    Fail("ring", absl::StrCat(ring.num_free(), " entries of ", expected.entries, " are free, ",
                              in_use, " are at workers and at most ", at_router, " at the router"));
  }
}

void Checker::OnSettled(RouterId id, const Fleet& fleet) {
  Router& router = routers_[id];
  size_t num_running = 0;
  size_t num_slots = 0;
  uint64_t num_preemptions = 0;
  for (uint32_t i = 0; i < fleet.num_pods(); ++i) {
    const PodEngine& engine = fleet.engine(i);
    Pod& pod = router.pods[i];
    pod.drains = engine.workers().draining(kVerifierPeer);
    if (engine.workers().ready(kVerifierPeer)) router.verifier_seen_at = now_;
    num_running += engine.num_running();
    num_slots += engine.num_slots();
    const uint64_t of_pod = engine.counts().preemptions;
    num_preemptions += of_pod;
    for (; pod.num_preemptions < of_pod; ++pod.num_preemptions) See(Sight::kPreemption);
  }
  const uint64_t num_replayed = fleet.audit().stats().num_replayed();
  for (; router.num_replayed < num_replayed; ++router.num_replayed) See(Sight::kReplay);

  size_t live = 0;
  for (const auto& [call_id, call] : calls_) live += call.live() && call.router == id ? 1 : 0;
  const size_t num_queued = fleet.num_waiting();
  if (num_running + num_queued != live) {
    Fail("calls", absl::StrCat("router ", id, " has ", num_running, " running and ", num_queued,
                               " waiting of ", live, " calls"));
  }
  // Only sequences that lost their slot may wait beyond the queue's length.
  const bool may_lose_slots = fleet.num_pods() > 1 || num_preemptions > 0;
  const size_t most_queued = scenario_->engine.max_queue + (may_lose_slots ? num_slots : 0);
  if (num_queued > most_queued) {
    Fail("queue", absl::StrCat(num_queued, " wait, allowed: ", most_queued));
  }
  for (uint32_t i = 0; i < fleet.num_pods(); ++i) {
    const WorkerSessions& workers = fleet.engine(i).workers();
    for (PeerId drafter = kDrafterPeer; drafter < workers.num_peers(); ++drafter) {
      CheckRing(router.pods[i].rings[drafter], workers.ring(drafter));
    }
  }
  for (const auto& [pod_id, pod] : router.pods) {
    for (const auto& [session_id, session] : pod.sessions) {
      if (session.open && session.unwanted) {
        Fail("roster",
             absl::StrCat("session ", session_id, " is open, and its model was unloaded"));
      }
    }
  }
  if (router.stopped && !fleet.idle()) Fail("liveness", "a router that stopped is not idle");
}

void Checker::OnQuiet(RouterId id, const Fleet& fleet) {
  if (!fleet.idle()) Fail("liveness", absl::StrCat("router ", id, " is not idle"));
  for (uint32_t i = 0; i < fleet.num_pods(); ++i) {
    const Pod& pod = routers_[id].pods[i];
    const WorkerSessions& workers = fleet.engine(i).workers();
    for (PeerId drafter = kDrafterPeer; drafter < workers.num_peers(); ++drafter) {
      const RingCredits& ring = workers.ring(drafter);
      const auto expected = pod.rings.find(drafter);
      if (ring.open() && expected != pod.rings.end() &&
          ring.num_free() != expected->second.entries) {
        Fail("ring", absl::StrCat("all is quiet, and ", ring.num_free(), " entries of ",
                                  expected->second.entries, " are free"));
      }
    }
    for (const auto& [session_id, session] : pod.sessions) {
      if (!session.open) continue;
      const FakeSlots* held = peek_(id, KindOf(session.peer), session_id);
      for (const auto& [slot_id, slot] : session.slots) {
        // An epoch that the worker refused to begin, or forgot, needs no close.
        const bool is_held =
            held != nullptr && slot_id < held->slots().size() && held->slots()[slot_id].open;
        if (!slot.closed && is_held) {
          Fail("slots", absl::StrCat("all is quiet, and slot ", slot_id, " of the ",
                                     PeerName(session.peer), " was opened and not closed"));
        }
      }
    }
  }
}

}  // namespace tandem::simulator
