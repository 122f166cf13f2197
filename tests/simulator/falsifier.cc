#include "tests/simulator/falsifier.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <variant>

namespace tandem::simulator {
namespace {

void EraseToken(int place, v1::GenerateResponse* response) {
  response->mutable_token_ids()->erase(response->token_ids().begin() + place);
  response->mutable_sources()->erase(response->sources().begin() + place);
  if (response->logprobs_size() > place) {
    response->mutable_logprobs()->DeleteSubrange(place, 1);
  }
}

// Returns the credits of the pod's engine. Only the engine itself may change them otherwise.
RingCredits& RingOf(const Fleet& fleet, SessionId session, uint64_t epoch) {
  auto& workers = const_cast<WorkerSessions&>(fleet.engine(PodOf(session)).workers());
  PeerId drafter = kDrafterPeer;
  while (drafter + 1 < workers.num_peers() && workers.ring(drafter).epoch() != epoch) ++drafter;
  return workers.ring(drafter);
}

// Whether the router found the item's draft in a text.
bool IsFound(const Fleet& fleet, SessionId session, const v1::VerifyItem& item) {
  const std::optional<VerifyBatch>& batch = fleet.engine(PodOf(session)).state().verify;
  if (!batch.has_value()) return false;
  return std::any_of(batch->items.begin(), batch->items.end(), [&](const VerifyBatch::Item& sent) {
    return sent.slot == item.at().slot() && sent.num_drafted > 0 &&
           sent.proposal.drafter != Drafter::kModel;
  });
}

}  // namespace

EngineOptions Falsifier::Options(EngineOptions options) const {
  if (bug_ == PlantedBug::kQueueOverfull) options.max_queue += 2;
  if (bug_ == PlantedBug::kStepRowsExceeded) options.step_rows *= 2;
  return options;
}

double Falsifier::ChangeDeadline(double deadline, double now) const {
  if (bug_ == PlantedBug::kDeadlineForgotten) return std::numeric_limits<double>::infinity();
  if (bug_ == PlantedBug::kDeadlineInThePast) return now - 1;
  return deadline;
}

SessionId Falsifier::ChangeReply(SessionId session, WorkerReply* reply) {
  auto* verifier = std::get_if<v1::VerifierReply>(reply);
  if (verifier != nullptr && verifier->has_verify()) {
    last_verdict_ = *verifier;
    if (bug_ == PlantedBug::kPathOfSibling) ChangePaths(verifier->mutable_verify());
    for (const v1::VerifyResult& result : verifier->verify().results()) {
      ended_on_sibling_.erase(result.state().slot());
      if (!result.path().empty() && *result.path().rbegin() + 1 != result.num_accepted()) {
        ended_on_sibling_.insert(result.state().slot());
      }
      if (result.proposal().token_ids().empty()) continue;
      std::vector<v1::SelfProposal>& all = proposals_[result.state().slot()];
      all.push_back(result.proposal());
      if (all.size() > 2) all.erase(all.begin());
    }
  }
  const Peer& peer = PeerOf(session);
  if (bug_ != PlantedBug::kOldSessionReplyAccepted || session == peer.session) return session;
  if (verifier != nullptr) {
    if (!verifier->has_verify()) return session;
    verifier->set_id(peer.batch);
  } else {
    auto& draft = std::get<v1::DraftReply>(*reply);
    if (!draft.has_propose()) return session;
    draft.set_id(peer.batch);
  }
  return peer.session;
}

// A draft that the verifier proposed becomes the beginning of the proposal before.
void Falsifier::UseOldProposal(v1::VerifyItem* item) const {
  const auto proposals = proposals_.find(item->at().slot());
  if (proposals == proposals_.end() || proposals->second.size() < 2 ||
      item->draft_token_ids().empty() || item->has_ring() ||
      item->draft_token_ids(0) != proposals->second[1].token_ids(0)) {
    return;
  }
  item->clear_parents();
  item->clear_draft_token_ids();
  item->add_draft_token_ids(proposals->second[0].token_ids(0));
}

// The engine books the last accepted token of a path as one of its siblings.
void Falsifier::ChangePaths(v1::VerifyReply* reply) const {
  for (v1::VerifyResult& result : *reply->mutable_results()) {
    const auto sent = sent_parents_.find(result.state().slot());
    if (result.path().empty() || sent == sent_parents_.end()) continue;
    const uint32_t last = result.path(result.path_size() - 1);
    for (uint32_t i = 0; i < sent->second.size() && last < sent->second.size(); ++i) {
      if (i != last && sent->second[i] == sent->second[last]) {
        result.set_path(result.path_size() - 1, i);
        break;
      }
    }
  }
}

std::optional<std::pair<SessionId, v1::VerifierReply>> Falsifier::TakeRepeated() {
  return std::exchange(repeated_, std::nullopt);
}

void Falsifier::ChangeCommands(const Fleet& fleet, EngineCommands* commands) {
  EngineCommands changed;
  for (EngineCommand& command : *commands) {
    if (auto* open = std::get_if<OpenSession>(&command)) {
      peer_ids_[open->session] = open->peer;
      Peer& peer = PeerOf(open->session);
      const SessionId old = std::exchange(peer.session, open->session);
      peer.ends.clear();
      for (const auto& [call, token] : last_tokens_) recovering_.insert(call);
      changed.push_back(command);
      if (bug_ == PlantedBug::kCommandToClosedSession && old != 0) {
        v1::DraftCommand update;
        update.mutable_update_slots();
        if (open->peer != kVerifierPeer) changed.push_back(SendToDrafter{old, update});
      }
      continue;
    }
    if (auto* draft = std::get_if<SendToDrafter>(&command)) {
      v1::DraftCommand& sent = draft->command;
      Peer& peer = PeerOf(draft->session);
      if (bug_ == PlantedBug::kOtherModelLoaded && !sent.attach().model().empty()) {
        sent.mutable_attach()->set_model(LoadedModelName(99, /*broken=*/false));
      }
      if (sent.has_propose()) {
        peer.batch = sent.id();
        ChangePropose(fleet, &peer, sent.mutable_propose());
      }
      if (sent.has_update_slots()) ChangeUpdates(&peer, sent.mutable_update_slots());
    } else if (auto* verifier = std::get_if<SendToVerifier>(&command)) {
      v1::VerifierCommand& sent = verifier->command;
      Peer& peer = PeerOf(verifier->session);
      if (bug_ == PlantedBug::kOtherHeadsLoaded && sent.has_set_heads()) {
        sent.mutable_set_heads()->set_heads(HeadsName(99, /*broken=*/false));
      }
      if (sent.has_update_slots()) ChangeUpdates(&peer, sent.mutable_update_slots());
      if (sent.has_verify()) {
        peer.batch = sent.id();
        ChangeVerify(fleet, &peer, sent.mutable_verify());
        if (bug_ == PlantedBug::kTwoBatchesInFlight) {
          changed.push_back(command);
          sent.set_id(sent.id() + 1);
        }
        if (bug_ == PlantedBug::kReplyTakenTwice && last_verdict_.has_value()) {
          repeated_ = {verifier->session, *std::exchange(last_verdict_, std::nullopt)};
          repeated_->second.set_id(sent.id());
        }
        if (bug_ == PlantedBug::kRollbackOfUnjudgedRows) {
          std::optional<SendToDrafter> rollback = RollBackUnjudged(verifier->session, sent);
          changed.push_back(std::move(command));
          if (rollback.has_value()) changed.push_back(*std::move(rollback));
          continue;
        }
      }
    } else if (auto* write = std::get_if<WriteResponse>(&command)) {
      ChangeWrite(write->call, &write->response);
    } else if (auto* finish = std::get_if<FinishCall>(&command)) {
      if (bug_ == PlantedBug::kFinishMissing && random_.Chance(0.3)) continue;
      if (bug_ == PlantedBug::kFinishTwice) changed.push_back(command);
      if (bug_ == PlantedBug::kWriteAfterFinish) {
        const CallId call = finish->call;
        changed.push_back(command);
        changed.push_back(WriteResponse{call, {}});
        continue;
      }
    }
    changed.push_back(std::move(command));
  }
  *commands = std::move(changed);
}

void Falsifier::ChangeWrite(CallId call, v1::GenerateResponse* response) {
  if (const int scored = response->prompt_logprobs_size(); scored > 0) {
    auto& scores = *response->mutable_prompt_logprobs();
    if (bug_ == PlantedBug::kPromptTokenScoredTwice) *scores.Add() = scores[scored - 1];
    if (bug_ == PlantedBug::kPromptTokenNotScored) scores.RemoveLast();
  }
  const int n = response->token_ids_size();
  if (n == 0) return;
  const int32_t last = response->token_ids(n - 1);
  switch (bug_) {
    case PlantedBug::kTokenEmittedTwiceAfterRecovery:
      if (recovering_.erase(call) == 0 || response->logprobs_size() > 0) break;
      response->mutable_token_ids()->Clear();
      response->add_token_ids(last_tokens_[call]);
      response->add_sources(v1::TOKEN_SOURCE_PLAIN);
      break;
    case PlantedBug::kTokenLost:
      if (n > 1) EraseToken(0, response);
      break;
    case PlantedBug::kNextTokenDropped:
      if (!response->has_completion()) EraseToken(n - 1, response);
      break;
    case PlantedBug::kTokensSwapped:
      if (n > 1) response->mutable_token_ids()->SwapElements(0, 1);
      break;
    case PlantedBug::kSourceMislabeled:
      if (response->sources(0) == v1::TOKEN_SOURCE_ACCEPTED) {
        response->set_sources(0, v1::TOKEN_SOURCE_BONUS);
      }
      break;
    default:
      break;
  }
  last_tokens_[call] = last;
}

void Falsifier::ChangeUpdates(Peer* peer, v1::UpdateSlots* update) {
  if (bug_ == PlantedBug::kSlotNotClosed) update->clear_closes();
  if (bug_ == PlantedBug::kRollbackNeverSent) update->clear_rollbacks();
  if (bug_ == PlantedBug::kEpochNotGrown) {
    for (v1::SlotClose& close : *update->mutable_closes()) close.set_slot_epoch(1);
    for (v1::SlotPoint& at : *update->mutable_rollbacks()) at.set_slot_epoch(1);
  }
  for (v1::SlotPoint& at : *update->mutable_rollbacks()) {
    if (bug_ == PlantedBug::kRollbackNumberReused) at.set_command_number(at.command_number() - 1);
    if (bug_ == PlantedBug::kRollbackOneRowOff && at.length() > 0) {
      at.set_length(at.length() - 1);
      at.set_prefix_hash(peer->owners[at.slot()]->hashes[at.length()]);
    }
    peer->ends[at.slot()] = at;
  }
}

std::optional<SendToDrafter> Falsifier::RollBackUnjudged(SessionId session,
                                                         const v1::VerifierCommand& sent) {
  Peer& drafter = PeerOf(kDrafterPeer, session);
  for (const v1::VerifyItem& item : sent.verify().items()) {
    const auto end = drafter.ends.find(item.at().slot());
    if (item.draft_token_ids_size() < 2 || end == drafter.ends.end()) continue;
    SendToDrafter rollback{drafter.session, {}};
    rollback.command.set_id(sent.id() + 1);
    v1::SlotPoint& at = *rollback.command.mutable_update_slots()->add_rollbacks();
    at = end->second;
    at.set_command_number(at.command_number() + 1);
    return rollback;
  }
  return std::nullopt;
}

const ClientPlan* Falsifier::PlanOf(Peer* peer, const v1::SlotPoint& at, const v1::SlotOpen* open) {
  const ClientPlan*& owner = peer->owners[at.slot()];
  if (open != nullptr) owner = &scenario_->clients[open->sampling().seed() - 1];
  return owner;
}

template <typename Item>
void Falsifier::ChangeItem(Worker worker, Peer* peer, Item* item) {
  v1::SlotPoint& at = *item->mutable_at();
  const ClientPlan& plan = *PlanOf(peer, at, item->has_open() ? &item->open() : nullptr);
  const auto skip = [&](uint32_t num_tokens) {
    at.set_length(at.length() + num_tokens);
    at.set_prefix_hash(plan.hashes[at.length()]);
    item->mutable_token_ids()->erase(item->token_ids().begin(),
                                     item->token_ids().begin() + static_cast<int>(num_tokens));
  };
  const bool to_verifier = worker == Worker::kVerifier;
  uint32_t& told = peer->told[&plan];
  switch (bug_) {
    case PlantedBug::kEpochNotGrown:
      at.set_slot_epoch(1);
      break;
    case PlantedBug::kCommandNumberReused:
      if (!item->has_open() && random_.Chance(0.2)) at.set_command_number(at.command_number() - 1);
      break;
    case PlantedBug::kCachedLenOneTooLong:
      if (to_verifier && item->token_ids_size() > 1) skip(1);
      break;
    case PlantedBug::kRejectionRowsBelieved:
      if (!to_verifier && item->token_ids_size() > 1) skip(1);
      break;
    case PlantedBug::kSiblingRowsBelieved:
      if (!to_verifier && item->token_ids_size() > 1 && ended_on_sibling_.erase(at.slot()) > 0) {
        skip(1);
      }
      break;
    case PlantedBug::kRowsOfOtherDrafterBelieved:
      for (const auto& [id, other] : peers_) {
        const auto rows = other.told.find(&plan);
        if (to_verifier || &other == peer || id.second == kVerifierPeer ||
            rows == other.told.end() || rows->second <= at.length()) {
          continue;
        }
        skip(std::min(rows->second - at.length(),
                      std::max<uint32_t>(item->token_ids_size(), 1) - 1));
      }
      break;
    case PlantedBug::kCachedLenOneTooShort:
      if (to_verifier && at.length() > plan.prompt_len()) {
        at.set_length(at.length() - 1);
        at.set_prefix_hash(plan.hashes[at.length()]);
        item->add_token_ids(0);
        for (int i = 0; i < item->token_ids_size(); ++i) {
          item->set_token_ids(i, plan.tokens[at.length() + static_cast<uint32_t>(i)]);
        }
      }
      break;
    case PlantedBug::kCatchUpSkipsToken:
      if (!to_verifier && item->token_ids_size() > 1) {
        item->mutable_token_ids()->erase(item->token_ids().begin());
      }
      break;
    case PlantedBug::kPreemptedRowsKept:
      if (to_verifier && item->has_open() && at.length() == 0 && told > 0 &&
          told < static_cast<uint32_t>(item->token_ids_size())) {
        skip(told);
      }
      break;
    default:
      break;
  }
  told = at.length() + static_cast<uint32_t>(item->token_ids_size());
  v1::SlotPoint& end = peer->ends[at.slot()];
  end = at;
  end.set_length(told);
  if (told < plan.hashes.size()) end.set_prefix_hash(plan.hashes[told]);
}

void Falsifier::ChangePropose(const Fleet& fleet, Peer* peer, v1::Propose* propose) {
  if (propose->has_update_slots()) ChangeUpdates(peer, propose->mutable_update_slots());
  for (v1::ProposeItem& item : *propose->mutable_items()) {
    ChangeItem(Worker::kDrafter, peer, &item);
    if (bug_ == PlantedBug::kRingEntryNeverReleased && item.has_ring()) {
      RingOf(fleet, peer->session, item.ring().ring_epoch()).Acquire();
    }
  }
}

void Falsifier::ChangeVerify(const Fleet& fleet, Peer* peer, v1::Verify* verify) {
  if (verify->has_update_slots()) ChangeUpdates(peer, verify->mutable_update_slots());
  for (v1::VerifyItem& item : *verify->mutable_items()) {
    ChangeItem(Worker::kVerifier, peer, &item);
    sent_parents_[item.at().slot()].assign(item.parents().begin(), item.parents().end());
    if (bug_ == PlantedBug::kDraftsOfOtherPrefix && item.draft_token_ids_size() > 1) {
      item.mutable_draft_token_ids()->erase(item.draft_token_ids().begin());
    }
    if (bug_ == PlantedBug::kRingEntryReleasedTwice && item.has_ring()) {
      RingOf(fleet, peer->session, item.ring().ring_epoch()).Release(item.ring());
    }
    if (bug_ == PlantedBug::kRingReferenceDropped) item.clear_ring();
    if (bug_ == PlantedBug::kRingOfOtherDrafter && item.has_ring()) {
      const WorkerSessions& workers = fleet.engine(PodOf(peer->session)).workers();
      for (PeerId drafter = kDrafterPeer; drafter < workers.num_peers(); ++drafter) {
        const RingCredits& ring = workers.ring(drafter);
        if (ring.open()) item.mutable_ring()->set_ring_epoch(ring.epoch());
      }
    }
    // The text of a lookup has a token that was never committed.
    if (bug_ == PlantedBug::kFoundInRejectedTokens && IsFound(fleet, peer->session, item)) {
      const int last = item.draft_token_ids_size() - 1;
      item.set_draft_token_ids(last, item.draft_token_ids(last) == 0 ? 1 : 0);
    }
    // The proposal of an old verdict is used.
    if (bug_ == PlantedBug::kOldProposalUsed) UseOldProposal(&item);
    if (bug_ == PlantedBug::kTreeJudgedAsChain) item.clear_parents();
    if (bug_ == PlantedBug::kTreeTooLarge && !item.parents().empty()) {
      for (uint32_t i = 0; i < kMaxTreeNodes; ++i) {
        item.add_draft_token_ids(item.draft_token_ids(0));
        item.add_parents(-1);
      }
    }
  }
}

}  // namespace tandem::simulator
