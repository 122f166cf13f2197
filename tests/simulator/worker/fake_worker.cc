#include "tests/simulator/worker/fake_worker.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/protocol.h"

namespace tandem::simulator {
namespace {

bool IsSampled(const v1::SlotOpen& open) {
  return open.sampling().temperature() > 0 && !open.reproducible();
}

std::string Encode(const std::vector<FakeRow>& rows) {
  return std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(FakeRow));
}

std::span<const int32_t> ToSpan(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.data(), static_cast<size_t>(ids.size())};
}

// The answer to a command before Attach.
template <typename Reply>
FakeWorker::Outcome RefuseUnattached(Reply reply) {
  FakeWorker::Outcome outcome;
  reply.mutable_error()->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
  reply.mutable_error()->set_message("the session is not attached");
  outcome.replies.push_back(std::move(reply));
  outcome.complaints.push_back("a command before Attach");
  outcome.ends_stream = true;
  return outcome;
}

}  // namespace

FakeWorker::FakeWorker(Worker kind, const Scenario* scenario,
                       const testing::ToyTokenizer* tokenizer, FakeRings* rings, PlantedBug bug,
                       SeededRandom random)
    : kind_(kind),
      scenario_(scenario),
      plan_(kind == Worker::kDrafter ? &scenario->drafter : &scenario->verifier),
      tokenizer_(tokenizer),
      rings_(rings),
      bug_(bug),
      random_(random),
      pages_(plan_->page_tokens, plan_->num_pages, bug),
      num_free_slots_(plan_->max_slots),
      heads_(scenario->has_heads, scenario->first_states, bug) {}

size_t FakeWorker::num_open_slots() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) {
    if (session.slots == nullptr) continue;
    for (const FakeSlot& slot : session.slots->slots()) count += slot.open ? 1 : 0;
  }
  return count;
}

std::string FakeWorker::CheckPages() const {
  std::vector<uint32_t> held(pages_.num_pages());
  for (const auto& [id, session] : sessions_) {
    if (session.slots == nullptr) continue;
    for (const FakeSlot& slot : session.slots->slots()) {
      if (slot.pages.size() != pages_.PagesOf(slot.tokens.size())) {
        return absl::StrCat("a slot of ", slot.tokens.size(), " rows holds ", slot.pages.size(),
                            " pages of ", pages_.page_tokens(), " rows");
      }
      for (uint32_t page : slot.pages) {
        ++held[page];
        if (const auto& key = pages_.key(page);
            key.has_value() && key->first != slot.request.cache_salt()) {
          return absl::StrCat("page ", page, " of tenant ", key->first, " is in a slot of tenant ",
                              slot.request.cache_salt());
        }
      }
    }
  }
  for (uint32_t page = 0; page < held.size(); ++page) {
    if (held[page] != pages_.references(page)) {
      return absl::StrCat("page ", page, " is in ", held[page], " slots, and counted ",
                          pages_.references(page), " times");
    }
  }
  return "";
}

uint32_t FakeWorker::ReportedFreePages() {
  return bug_ == PlantedBug::kFreePagesMiscounted ? pages_.num_pages() : pages_.num_free();
}

FakeWorker::Outcome FakeWorker::Handle(StreamId stream, const WorkerCommand& command) {
  const auto* draft = std::get_if<v1::DraftCommand>(&command);
  Outcome outcome = draft != nullptr
                        ? HandleDraft(stream, *draft)
                        : HandleVerifier(stream, std::get<v1::VerifierCommand>(command));
  outcome.num_free_pages = pages_.num_free();
  for (WorkerReply& reply : outcome.replies) {
    if (auto* drafted = std::get_if<v1::DraftReply>(&reply); drafted && drafted->has_propose()) {
      outcome.num_free_pages = ReportedFreePages();
      drafted->mutable_propose()->set_num_free_pages(outcome.num_free_pages);
    }
    if (auto* verified = std::get_if<v1::VerifierReply>(&reply);
        verified && verified->has_verify()) {
      outcome.num_free_pages = ReportedFreePages();
      verified->mutable_verify()->set_num_free_pages(outcome.num_free_pages);
      verified->mutable_verify()->set_num_open_slots(static_cast<uint32_t>(num_open_slots()));
    }
  }
  return outcome;
}

void FakeWorker::EndStream(StreamId stream) {
  const auto found = sessions_.find(stream);
  if (found == sessions_.end()) return;
  for (const auto& [number, ring] : found->second.rings) rings_->Withdraw(ring->epoch);
  sessions_.erase(found);
}

// ---------------------------------------------------------------- attach, slots

v1::AttachReply FakeWorker::Attached(const std::string& model) const {
  v1::AttachReply reply;
  reply.set_protocol_version(kProtocolVersion);
  reply.set_version("simulated");
  reply.set_model(model.empty() ? model_ : model);
  reply.set_backend("cpu");
  reply.set_numerics_id("simulated");
  reply.set_vocabulary_size(static_cast<uint32_t>(scenario_->pair.vocabulary_size));
  reply.set_vocabulary_fingerprint(other_vocabulary_ ? "other" : tokenizer_->FingerprintBytes());
  reply.set_max_context_tokens(plan_->max_context_tokens);
  reply.set_max_slots(plan_->max_slots);
  reply.set_boot_id(kind_ == Worker::kDrafter ? scenario_->drafter_boot_id : "host");
  for (v1::RingTransport transport : plan_->transports) reply.add_transports(transport);
  reply.set_page_tokens(plan_->page_tokens);
  reply.set_num_pages(plan_->num_pages);
  reply.set_lease_seconds(kLeaseSeconds);
  if (kind_ == Worker::kVerifier) *reply.mutable_self_drafter() = heads_.drafter();
  return reply;
}

bool FakeWorker::Attach(const v1::Attach& attach, Session& session, v1::WorkerError* error) {
  error->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
  if (session.slots != nullptr) {
    error->set_message("the session is attached already");
    return false;
  }
  if (attach.protocol_version() != kProtocolVersion) {
    error->set_message("protocol version differs");
    return false;
  }
  session.slots = std::make_unique<FakeSlots>(&pages_, &num_free_slots_, attach.max_slots(), bug_);
  session.proposed.resize(attach.max_slots());
  session.verified.resize(attach.max_slots());
  session.limits = {attach.max_draft_length(), attach.max_tree_nodes()};
  return true;
}

template <typename Result>
FakeSlot* FakeWorker::Admit(const v1::SlotPoint& at, const v1::SlotOpen* open, Session& session,
                            std::vector<Result>& last, Result* result, Outcome& outcome) {
  switch (session.slots->Check(at, open, result->mutable_state())) {
    case FakeSlots::Verdict::kExecute:
      return &session.slots->slots()[at.slot()];
    case FakeSlots::Verdict::kReplay:
      ++outcome.num_replays;
      *result =
          last[bug_ == PlantedBug::kReplayOfOtherSlot ? (at.slot() + 1) % last.size() : at.slot()];
      if (result->state().slot() != at.slot()) {
        outcome.complaints.push_back("worker: a replayed result is of another slot");
      } else if (result->state().command_number() !=
                 session.slots->slots()[at.slot()].last_command) {
        outcome.complaints.push_back("worker: a replayed result is not the newest command's");
      }
      return nullptr;
    case FakeSlots::Verdict::kRefuse:
      if (result->state().code() != v1::WORKER_CODE_ABORTED &&
          result->state().code() != v1::WORKER_CODE_RESOURCE_EXHAUSTED) {
        outcome.complaints.push_back(result->state().message());
      }
      return nullptr;
  }
  return nullptr;
}

template <typename Result>
void FakeWorker::UpdateSlots(const v1::UpdateSlots& update, Session& session,
                             std::vector<Result>& last, v1::UpdateSlotsReply* reply,
                             Outcome& outcome) {
  for (const v1::SlotPoint& at : update.rollbacks()) {
    Result result;
    FakeSlot* slot = Admit(at, nullptr, session, last, &result, outcome);
    if (slot != nullptr) {
      session.slots->Begin(at, *slot);
      outcome.executions.push_back({at.slot(), at.slot_epoch(), at.command_number()});
      session.slots->FillState(at, v1::WORKER_CODE_OK, "", result.mutable_state());
      if (bug_ != PlantedBug::kRollbackNotStored) last[at.slot()] = result;
    }
    *reply->add_rollbacks() = result.state();
  }
  for (const v1::SlotClose& close : update.closes()) session.slots->Close(close);
}

template <typename Result>
void FakeWorker::Refuse(const v1::SlotPoint& at, const Refusal& refusal, const FakeSlots& slots,
                        Result* result, Outcome& outcome) {
  slots.FillState(at, refusal.code, refusal.message, result->mutable_state());
  if (refusal.code != v1::WORKER_CODE_RESOURCE_EXHAUSTED) {
    outcome.complaints.push_back(refusal.message);
  }
}

// ---------------------------------------------------------------- draft

FakeWorker::Outcome FakeWorker::HandleDraft(StreamId stream, const v1::DraftCommand& command) {
  Outcome outcome;
  Session& session = sessions_[stream];
  v1::DraftReply reply;
  reply.set_id(command.id());
  if (session.slots == nullptr && !command.has_attach()) return RefuseUnattached(std::move(reply));
  switch (command.kind_case()) {
    case v1::DraftCommand::kAttach: {
      v1::WorkerError error;
      if (IsBroken(command.attach().model())) {
        reply.mutable_error()->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
        reply.mutable_error()->set_message("the model cannot be loaded");
        outcome.refuses_model = true;
        outcome.ends_stream = true;
      } else if (Attach(command.attach(), session, &error)) {
        *reply.mutable_attach() = Attached(command.attach().model());
      } else {
        *reply.mutable_error() = error;
        outcome.complaints.push_back(error.message());
        outcome.ends_stream = session.slots == nullptr;
      }
      break;
    }
    case v1::DraftCommand::kOpenRing: {
      const std::string error = OpenRing(command.open_ring(), session, reply.mutable_open_ring());
      if (!error.empty()) {
        reply.mutable_error()->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
        reply.mutable_error()->set_message(error);
      }
      break;
    }
    case v1::DraftCommand::kReadVocabulary:
      SendVocabulary(command.id(), outcome);
      return outcome;
    case v1::DraftCommand::kUpdateSlots:
      UpdateSlots(command.update_slots(), session, session.proposed, reply.mutable_update_slots(),
                  outcome);
      break;
    case v1::DraftCommand::kPropose: {
      const v1::Propose& propose = command.propose();
      v1::ProposeReply& proposed = *reply.mutable_propose();
      if (propose.has_update_slots()) {
        UpdateSlots(propose.update_slots(), session, session.proposed,
                    proposed.mutable_update_slots(), outcome);
      }
      for (const v1::ProposeItem& item : propose.items()) {
        *proposed.add_results() = ProposeOne(item, command.id(), session, outcome);
      }
      outcome.seconds = random_.Real(0.0002, plan_->longest_batch_seconds);
      proposed.set_compute_seconds(outcome.seconds);
      proposed.set_catch_up_seconds(outcome.seconds / 2);
      break;
    }
    case v1::DraftCommand::KIND_NOT_SET:
      outcome.complaints.push_back("an empty command");
      break;
  }
  outcome.replies.push_back(std::move(reply));
  return outcome;
}

void FakeWorker::SendVocabulary(uint64_t id, Outcome& outcome) const {
  const auto& entries = tokenizer_->entries();
  const size_t half = entries.size() / 2;
  for (size_t begin : {size_t{0}, half}) {
    v1::DraftReply chunk;
    chunk.set_id(id);
    chunk.mutable_vocabulary()->set_first_id(static_cast<uint32_t>(begin));
    for (size_t i = begin; i < (begin == 0 ? half : entries.size()); ++i) {
      chunk.mutable_vocabulary()->add_entries(other_vocabulary_ && i == 3 ? "?" : entries[i]);
    }
    chunk.mutable_vocabulary()->set_last(begin != 0);
    outcome.replies.push_back(std::move(chunk));
  }
}

std::string FakeWorker::OpenRing(const v1::OpenRing& command, Session& session,
                                 v1::OpenRingReply* reply) {
  session.ring.reset();
  session.transport = command.transport();
  session.ring_epoch = command.ring_epoch();
  if (command.transport() == v1::RING_TRANSPORT_INLINE) {
    reply->set_nonce(0);
    return "";
  }
  if (command.transport() != v1::RING_TRANSPORT_SHM || scenario_->drafter_boot_id != "host") {
    return "no such transport";
  }
  session.ring = rings_->Fetch(command.socket_path());
  if (session.ring == nullptr || session.ring->epoch != command.ring_epoch() ||
      session.ring->entries.size() != command.entries()) {
    session.ring.reset();
    return "nothing is offered there";
  }
  reply->set_nonce(session.ring->nonce);
  return "";
}

void FakeWorker::AddSiblings(const v1::ProposeItem& item, std::span<const uint64_t> prefixes,
                             std::vector<FakeRow>* rows, v1::ProposeResult* result) const {
  const ToyPair& pair = scenario_->pair;
  const uint32_t num_siblings =
      std::accumulate(item.num_siblings().begin(), item.num_siblings().end(), 0U);
  if (num_siblings == 0) return;
  const auto length = static_cast<int32_t>(item.draft_length());
  for (int32_t i = 0; i < length; ++i) result->add_parents(i - 1);
  for (int32_t i = 0; i < item.num_siblings_size(); ++i) {
    const uint64_t prefix = prefixes[static_cast<size_t>(i)];
    // The first sibling is the target's token, or the one after it, unless the chain has it.
    int32_t token = pair.Target(prefix) + static_cast<int32_t>(prefix % 2);
    for (uint32_t sibling = 0; sibling < item.num_siblings(i); ++sibling, ++token) {
      token += token % pair.vocabulary_size == result->draft_token_ids(i) ? 1 : 0;
      result->add_draft_token_ids(token % pair.vocabulary_size);
      result->add_parents(i - 1);
      rows->push_back({prefix, token % pair.vocabulary_size});
    }
  }
}

v1::ProposeResult FakeWorker::ProposeOne(const v1::ProposeItem& item, uint64_t id, Session& session,
                                         Outcome& outcome) {
  v1::ProposeResult result;
  const v1::SlotPoint& at = item.at();
  FakeSlots& slots = *session.slots;
  FakeSlot* slot = Admit(at, item.has_open() ? &item.open() : nullptr, session, session.proposed,
                         &result, outcome);
  if (slot == nullptr) return result;
  const auto refuse = [&](v1::WorkerCode code, const std::string& message) {
    Refuse(at, {code, message}, slots, &result, outcome);
    return result;
  };
  const std::span<const int32_t> token_ids = ToSpan(item.token_ids());
  if (item.draft_length() > session.limits.max_depth) {
    return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "draft_length is over the session's");
  }
  const uint32_t num_nodes =
      std::accumulate(item.num_siblings().begin(), item.num_siblings().end(), item.draft_length());
  if (num_nodes > item.draft_length() &&
      (num_nodes > session.limits.max_nodes ||
       item.num_siblings_size() > static_cast<int>(item.draft_length()))) {
    return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "num_siblings: no tree of the session");
  }
  if (token_ids.empty()) return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "token_ids is empty");
  const size_t fed = at.length() + token_ids.size();
  if (fed > plan_->max_context_tokens) {
    return refuse(v1::WORKER_CODE_RESOURCE_EXHAUSTED, "the context is full");
  }
  const size_t draft_length =
      std::min<size_t>(item.draft_length(), plan_->max_context_tokens - fed + 1);
  if (!slots.HasRoom(*slot, at.length(), fed + (draft_length > 0 ? draft_length - 1 : 0))) {
    return refuse(v1::WORKER_CODE_RESOURCE_EXHAUSTED, "no page is free");
  }
  const bool wants_ring = IsSampled(slot->request) && draft_length > 0;
  if (wants_ring) {
    if (!item.has_ring()) {
      return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "ring: missing for a sampled draft");
    }
    if (session.transport == v1::RING_TRANSPORT_UNSPECIFIED ||
        session.ring_epoch != item.ring().ring_epoch()) {
      return refuse(v1::WORKER_CODE_FAILED_PRECONDITION, "ring: another epoch, or none");
    }
  }

  slots.Begin(at, *slot);
  outcome.executions.push_back({at.slot(), at.slot_epoch(), at.command_number()});
  const size_t may_be_cached = token_ids.size() - (draft_length > 0 ? 1 : 0);
  const uint32_t cached =
      slots.TakeCached(*slot, token_ids.first(may_be_cached), plan_->cache_hit_chance, random_);
  result.set_num_cached_tokens(cached);
  for (int32_t token : token_ids.subspan(cached)) Append(slots, *slot, token);

  std::vector<FakeRow> rows;
  std::vector<uint64_t> prefixes;
  for (size_t i = 0; i < draft_length; ++i) {
    if (i > 0) Append(slots, *slot, result.draft_token_ids(static_cast<int>(i) - 1));
    if (random_.Chance(plan_->non_finite_chance)) break;
    const uint64_t prefix = slots.LastRow(*slot);
    const uint64_t draw = IsSampled(slot->request) ? random_.Next() : 0;
    result.add_draft_token_ids(scenario_->pair.Draft(prefix, draw));
    rows.push_back({prefix, result.draft_token_ids(static_cast<int>(i))});
    prefixes.push_back(prefix);
  }
  if (rows.size() == item.draft_length()) AddSiblings(item, prefixes, &rows, &result);
  if (wants_ring && !rows.empty()) SendRows(item.ring(), id, rows, session, outcome);
  slots.FillState(at, v1::WORKER_CODE_OK, "", result.mutable_state());
  session.proposed[at.slot()] = result;
  return result;
}

void FakeWorker::SendRows(const v1::RingReference& ring, uint64_t id,
                          const std::vector<FakeRow>& rows, Session& session, Outcome& outcome) {
  if (session.ring != nullptr) {  // shm
    FakeRingEntry& entry = session.ring->entries[ring.entry() % session.ring->entries.size()];
    entry.state = FakeRingEntry::State::kReady;
    entry.sequence = ring.sequence();
    entry.rows = rows;
    return;
  }
  const std::string data = Encode(rows);
  const size_t first = rows.size() > 1 && random_.Chance(0.5) ? sizeof(FakeRow) : data.size();
  for (size_t begin = 0; begin < data.size(); begin += begin == 0 ? first : data.size()) {
    v1::DraftReply piece;
    piece.set_id(id);
    v1::LogProbChunk& chunk = *piece.mutable_log_prob_chunk();
    *chunk.mutable_ring() = ring;
    chunk.set_rows(static_cast<uint32_t>(rows.size()));
    chunk.set_offset_bytes(begin);
    chunk.set_data(data.substr(begin, begin == 0 ? first : data.size() - begin));
    outcome.replies.push_back(std::move(piece));
  }
}

// ---------------------------------------------------------------- verify

FakeWorker::Outcome FakeWorker::HandleVerifier(StreamId stream,
                                               const v1::VerifierCommand& command) {
  Outcome outcome;
  Session& session = sessions_[stream];
  v1::VerifierReply reply;
  reply.set_id(command.id());
  if (session.slots == nullptr && !command.has_attach()) return RefuseUnattached(std::move(reply));
  std::string refusal;
  switch (command.kind_case()) {
    case v1::VerifierCommand::kAttach: {
      v1::WorkerError error;
      if (Attach(command.attach(), session, &error)) {
        *reply.mutable_attach() = Attached("");
        session.told_heads = heads_.version();
      } else {
        refusal = error.message();
        outcome.complaints.push_back(refusal);
        outcome.ends_stream = session.slots == nullptr;
      }
      break;
    }
    case v1::VerifierCommand::kCreateRing:
      CreateRing(command.create_ring(), session, reply.mutable_create_ring());
      break;
    case v1::VerifierCommand::kSetHeads:
      refusal = SetHeads(command.set_heads(), reply.mutable_set_heads());
      session.told_heads = heads_.version();
      break;
    case v1::VerifierCommand::kDropRing:
      DropRing(command.drop_ring().draft_model_number(), session);
      return outcome;
    case v1::VerifierCommand::kConfirmRing: {
      FakeRing* ring = RingOf(session, command.confirm_ring().ring_epoch());
      if (ring == nullptr || ring->nonce != command.confirm_ring().nonce()) {
        refusal = "another ring, or another nonce";
      } else {
        ring->confirmed = true;
        reply.mutable_confirm_ring();
      }
      break;
    }
    case v1::VerifierCommand::kLogProbChunk:
      if (std::string error = AcceptChunk(command.log_prob_chunk(), session); !error.empty()) {
        outcome.complaints.push_back(std::move(error));
      }
      return outcome;
    case v1::VerifierCommand::kUpdateSlots:
      UpdateSlots(command.update_slots(), session, session.verified, reply.mutable_update_slots(),
                  outcome);
      break;
    case v1::VerifierCommand::kVerify:
      Verify(command.verify(), session, reply.mutable_verify(), outcome);
      break;
    case v1::VerifierCommand::KIND_NOT_SET:
      outcome.complaints.push_back("an empty command");
      break;
  }
  if (!refusal.empty()) {
    reply.mutable_error()->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
    reply.mutable_error()->set_message(refusal);
  }
  outcome.replies.push_back(std::move(reply));
  return outcome;
}

void FakeWorker::Verify(const v1::Verify& verify, Session& session, v1::VerifyReply* reply,
                        Outcome& outcome) {
  if (verify.has_update_slots()) {
    UpdateSlots(verify.update_slots(), session, session.verified, reply->mutable_update_slots(),
                outcome);
  }
  for (const v1::VerifyItem& item : verify.items()) {
    *reply->add_results() = VerifyOne(item, session, outcome);
  }
  outcome.seconds = random_.Real(0.0002, plan_->longest_batch_seconds);
  reply->set_compute_seconds(outcome.seconds);
  if (std::exchange(session.told_heads, heads_.version()) != heads_.version()) {
    *reply->mutable_self_drafter() = heads_.drafter();
  }
}

std::string FakeWorker::SetHeads(const v1::SetHeads& wish, v1::SetHeadsReply* reply) {
  const uint64_t version = heads_.version();
  const uint32_t stored = heads_.stored_states();
  std::string refusal = heads_.Set(wish, random_, reply);
  if (heads_.version() == version) return refusal;
  if (bug_ != PlantedBug::kFeaturesSurviveSwap) pages_.ForgetHeadsRows();
  if (heads_.stored_states() != stored && bug_ != PlantedBug::kStatesSurviveSwap) {
    pages_.ForgetFeatures();
  }
  return refusal;
}

void FakeWorker::DropRing(uint32_t draft_model_number, Session& session) {
  const auto found = session.rings.find(draft_model_number);
  if (found == session.rings.end()) return;
  rings_->Withdraw(found->second->epoch);
  session.rings.erase(found);
}

void FakeWorker::CreateRing(const v1::CreateRing& create, Session& session,
                            v1::CreateRingReply* reply) {
  std::shared_ptr<FakeRing>& ring = session.rings[create.draft_model_number()];
  if (ring != nullptr) rings_->Withdraw(ring->epoch);
  ring = std::make_shared<FakeRing>();
  ring->epoch = rings_->NextEpoch();
  ring->transport = create.transport();
  ring->nonce = create.transport() == v1::RING_TRANSPORT_SHM ? random_.Next() : 0;
  ring->rows_per_entry = create.rows_per_entry();
  ring->entries.resize(create.entries());
  if (create.transport() == v1::RING_TRANSPORT_SHM) {
    rings_->Offer(ring);
    reply->set_socket_path(FakeRings::Path(ring->epoch));
  }
  reply->set_ring_epoch(ring->epoch);
}

FakeRing* FakeWorker::RingOf(const Session& session, uint64_t epoch) {
  for (const auto& [number, ring] : session.rings) {
    if (ring->epoch == epoch) return ring.get();
  }
  return nullptr;
}

std::string FakeWorker::AcceptChunk(const v1::LogProbChunk& chunk, Session& session) {
  const v1::RingReference& reference = chunk.ring();
  FakeRing* ring = RingOf(session, reference.ring_epoch());
  if (ring == nullptr || reference.entry() >= ring->entries.size()) {
    return "a piece of another ring";
  }
  FakeRingEntry& entry = ring->entries[reference.entry()];
  if (reference.sequence() < entry.sequence) return "a piece of an older block";
  if (chunk.offset_bytes() == 0 && reference.sequence() > entry.sequence) {
    entry.state = FakeRingEntry::State::kFilling;
    entry.sequence = reference.sequence();
    entry.rows.assign(chunk.rows(), FakeRow());
    entry.received_bytes = 0;
  }
  if (entry.state != FakeRingEntry::State::kFilling || entry.sequence != reference.sequence() ||
      chunk.offset_bytes() != entry.received_bytes ||
      chunk.offset_bytes() + chunk.data().size() > entry.rows.size() * sizeof(FakeRow)) {
    return "a piece out of order";
  }
  std::memcpy(reinterpret_cast<char*>(entry.rows.data()) + chunk.offset_bytes(),
              chunk.data().data(), chunk.data().size());
  entry.received_bytes += chunk.data().size();
  if (entry.received_bytes == entry.rows.size() * sizeof(FakeRow)) {
    entry.state = FakeRingEntry::State::kReady;
  }
  return "";
}

std::string FakeWorker::TakeBlock(const v1::VerifyItem& item, Session& session,
                                  std::vector<FakeRow>* rows) {
  const v1::RingReference& reference = item.ring();
  FakeRing* ring = RingOf(session, reference.ring_epoch());
  if (ring == nullptr || !ring->confirmed) return "no such ring";
  if (reference.entry() >= ring->entries.size()) return "no such entry";
  FakeRingEntry& entry = ring->entries[reference.entry()];
  const size_t num_drafts = static_cast<size_t>(item.draft_token_ids_size());
  if (bug_ == PlantedBug::kRingSequenceNotChecked) {
    entry.rows.resize(num_drafts);
  } else {
    if (entry.state != FakeRingEntry::State::kReady) return "not ready";
    if (entry.sequence != reference.sequence()) return "another sequence";
    if (entry.rows.size() != num_drafts) return "another number of rows";
    for (size_t i = 0; i < num_drafts; ++i) {
      if (spoils_ring_ || entry.rows[i].token_id != item.draft_token_ids(static_cast<int>(i))) {
        return "a row is no distribution that gives its token";
      }
    }
  }
  *rows = entry.rows;
  entry.state = FakeRingEntry::State::kFree;
  return "";
}

FakeWorker::Refusal FakeWorker::CheckItem(const v1::VerifyItem& item, const FakeSlot& slot,
                                          const Session& session) const {
  const auto num_drafts = static_cast<size_t>(item.draft_token_ids_size());
  for (int32_t id : item.token_ids()) {
    if (id < 0 || id >= scenario_->pair.vocabulary_size) {
      return {v1::WORKER_CODE_INVALID_ARGUMENT, "token_ids: out of the vocabulary"};
    }
  }
  if (item.token_ids().empty()) return {v1::WORKER_CODE_INVALID_ARGUMENT, "token_ids is empty"};
  if (const absl::Status status = CheckDraft(ToSpan(item.parents()), num_drafts, session.limits);
      !status.ok()) {
    return {v1::WORKER_CODE_INVALID_ARGUMENT, std::string(status.message())};
  }
  if (!item.sample() && num_drafts > 0) {
    return {v1::WORKER_CODE_INVALID_ARGUMENT, "drafts, and `sample` is false"};
  }
  const v1::ProposalShape& shape = item.propose();
  if (item.has_propose() && (!item.sample() || !heads_.had_heads() || shape.max_depth() < 1 ||
                             shape.max_depth() > session.limits.max_depth ||
                             shape.max_nodes() > session.limits.max_nodes)) {
    return {v1::WORKER_CODE_INVALID_ARGUMENT, "propose: not possible"};
  }
  const auto num_scored = static_cast<int>(item.scores().num_rows());
  if (item.has_scores() &&
      (!slot.request.has_prompt_logprobs() || num_drafts > 0 || num_scored < 1 ||
       num_scored > item.token_ids_size() ||
       item.token_ids_size() > static_cast<int>(kMaxScoredRows) ||
       item.scores().has_following_token_id() != (num_scored == item.token_ids_size()))) {
    return {v1::WORKER_CODE_INVALID_ARGUMENT, "scores: not possible"};
  }
  const size_t rows = item.at().length() + static_cast<size_t>(item.token_ids_size()) + num_drafts;
  if (rows > plan_->max_context_tokens) {
    return {v1::WORKER_CODE_RESOURCE_EXHAUSTED, "the context is full"};
  }
  if (!session.slots->HasRoom(slot, item.at().length(), rows)) {
    return {v1::WORKER_CODE_RESOURCE_EXHAUSTED, "no page is free"};
  }
  return {};
}

void FakeWorker::SpoilRows(const Drafts& drafts, int32_t last, std::array<uint64_t, 2> before,
                           const FakeSlots& slots, FakeSlot* slot) const {
  const auto num_drafts = static_cast<int32_t>(drafts.token_ids.size());
  const auto parent_of = [&](int32_t node) {
    return drafts.parents.empty() ? node - 1 : drafts.parents[static_cast<size_t>(node)];
  };
  for (int32_t node = 0; node < num_drafts; ++node) {
    const int32_t token = drafts.token_ids[static_cast<size_t>(node)];
    const bool is_rejected_child = parent_of(node) == last;
    const bool is_sibling = last >= 0 && node != last && parent_of(node) == parent_of(last);
    if (bug_ == PlantedBug::kRejectedRowsKept && is_rejected_child) {
      slot->wrong_row = ExtendTokenHash(slots.LastRow(*slot), token);
    }
    if (bug_ == PlantedBug::kRowOfSiblingKept && is_sibling) {
      slot->wrong_row = ExtendTokenHash(before[0], token);
    }
  }
  // Rows 2 and 3 become rows 1 and 2, and the copy of row 3 comes first: row 1 is that of row 3.
  // What follows sees the last row alone, so the last row is the one that is wrong here.
  if (bug_ == PlantedBug::kRowsMovedBackwards && !drafts.parents.empty() && last > 1) {
    slot->wrong_row = before[1];
  }
}

bool FakeWorker::Judge(const Drafts& drafts, FakeSlot& slot, FakeSlots& slots,
                       v1::VerifyResult* result) {
  const ToyPair& pair = scenario_->pair;
  const ClientPlan& plan = PlanOf(slot);
  const auto is_finite = [&] {
    return !plan.non_finite_at.has_value() ||
           slot.tokens.size() < plan.prompt_len() + *plan.non_finite_at;
  };
  const auto commit = [&](int32_t token) {
    for (uint32_t rank = 0; rank < slot.request.num_successors(); ++rank) {
      // The right token is the second favorite.
      const auto shift = static_cast<int32_t>(rank < 2 ? 1 - rank : rank);
      result->add_successors((pair.Target(slots.LastRow(slot)) + shift) % pair.vocabulary_size);
    }
    if (!slot.request.sampling().has_logprobs()) return;
    result->add_logprobs()->set_logprob(pair.Logprob(slots.LastRow(slot), token));
  };
  // Returns the accepted child of a node. -1: there is none.
  const auto accepted_child = [&](int32_t node) {
    for (size_t i = 0; i < drafts.token_ids.size(); ++i) {
      const int32_t parent =
          drafts.parents.empty() ? static_cast<int32_t>(i) - 1 : drafts.parents[i];
      if (parent != node) continue;
      // With rows of another prefix, the acceptance test accepts tokens that it should reject.
      const bool rows_differ = !drafts.q.empty() && drafts.q[i].prefix != slots.LastRow(slot);
      if (drafts.token_ids[i] == pair.Target(slots.LastRow(slot)) || rows_differ) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  };
  int32_t node = -1;
  std::array<uint64_t, 2> before = {slots.LastRow(slot), slots.LastRow(slot)};
  while (true) {
    if (!is_finite()) return false;
    const int32_t child = accepted_child(node);
    if (child < 0) break;
    node = child;
    const int32_t token = drafts.token_ids[static_cast<size_t>(node)];
    commit(token);
    before = {slots.LastRow(slot), before[0]};
    Append(slots, slot, token);
    result->set_num_accepted(result->num_accepted() + 1);
    if (!drafts.parents.empty()) result->add_path(static_cast<uint32_t>(node));
  }
  result->set_next_token_id(pair.Target(slots.LastRow(slot)));
  commit(result->next_token_id());
  SpoilRows(drafts, node, before, slots, &slot);
  if (slot.request.audit() && IsSampled(slot.request)) {
    for (uint32_t i = 0; i <= result->num_accepted(); ++i) {
      result->add_audit()->set_uniform(random_.Real(0, 1));
    }
  }
  return true;
}

void FakeWorker::AppendScored(const v1::VerifyItem& item, FakeSlots& slots, FakeSlot& slot,
                              v1::VerifyResult* result) const {
  for (int i = 0; i < item.token_ids_size(); ++i) {
    Append(slots, slot, item.token_ids(i));
    if (i >= static_cast<int>(item.scores().num_rows())) continue;
    const bool is_last = i + 1 == item.token_ids_size();
    const int32_t next = is_last ? item.scores().following_token_id() : item.token_ids(i + 1);
    v1::TokenLogprobs* const token = result->add_prompt_logprobs();
    token->set_logprob(scenario_->pair.Logprob(slots.LastRow(slot), next));
    for (int32_t rank = 0; rank < slot.request.prompt_logprobs(); ++rank) {
      token->add_top()->set_token_id(rank);
    }
  }
}

bool FakeWorker::PrepareHeads(FakeSlot& slot, FakeSlots& slots, Outcome& outcome) const {
  constexpr size_t kMostRows = 12;  // that are missing, in one command
  if (heads_.states() == 0) return heads_.any();
  if (!slots.HasFeatures(slot)) {
    ++outcome.num_without_features;
    return false;
  }
  const uint64_t heads = heads_.version() + 1;
  const size_t rows = slot.tokens.size();
  const size_t has = slots.NumHeadsRows(slot);
  if (has > slot.num_heads_rows) ++outcome.num_shared_features;
  if (rows - has > pages_.page_tokens()) {
    slots.FillHeadsRows(slot, std::min(rows, has + kMostRows), heads);
  }
  if (rows - slots.NumHeadsRows(slot) > pages_.page_tokens()) return false;
  slots.FillHeadsRows(slot, rows, heads);
  if (outcome.wrong_features.empty()) {
    outcome.wrong_features = slots.CheckHeadsRows(slot, heads, heads_.states());
  }
  return true;
}

// A path of the draft model's tokens, with a wrong sibling of each where the shape allows it.
v1::SelfProposal FakeWorker::ProposeAfter(const v1::ProposalShape& shape, uint64_t row,
                                          int32_t next_token_id) const {
  const ToyPair& pair = scenario_->pair;
  v1::SelfProposal proposal;
  row = ExtendTokenHash(row, next_token_id);
  int32_t parent = -1;
  for (uint32_t i = 0; i < std::min(shape.max_depth(), FakeHeads::kDepth); ++i) {
    const int32_t token = pair.Draft(row, 0);
    row = ExtendTokenHash(row, token);
    const auto size = static_cast<uint32_t>(proposal.token_ids_size());
    const uint32_t left = shape.max_nodes() == 0 ? 1 : shape.max_nodes() - size;
    if (left == 0) break;
    for (uint32_t sibling = 0; sibling < (shape.max_nodes() == 0 ? 1 : std::min(left, 2U));
         ++sibling) {
      proposal.add_token_ids((token + static_cast<int32_t>(sibling)) % pair.vocabulary_size);
      proposal.add_parents(parent);
      proposal.add_chances(sibling == 0 ? 0.6f : 0.3f);
    }
    parent = static_cast<int32_t>(size);
  }
  if (shape.max_nodes() == 0) proposal.clear_parents();
  return proposal;
}

v1::VerifyResult FakeWorker::VerifyOne(const v1::VerifyItem& item, Session& session,
                                       Outcome& outcome) {
  v1::VerifyResult result;
  const v1::SlotPoint& at = item.at();
  FakeSlots& slots = *session.slots;
  FakeSlot* slot = Admit(at, item.has_open() ? &item.open() : nullptr, session, session.verified,
                         &result, outcome);
  if (slot == nullptr) return result;
  if (const Refusal refusal = CheckItem(item, *slot, session); refusal.code != v1::WORKER_CODE_OK) {
    Refuse(at, refusal, slots, &result, outcome);
    return result;
  }
  const std::span<const int32_t> token_ids = ToSpan(item.token_ids());
  Drafts drafts = {{item.draft_token_ids().begin(), item.draft_token_ids().end()},
                   {item.parents().begin(), item.parents().end()},
                   {}};

  slots.Begin(at, *slot);
  outcome.executions.push_back({at.slot(), at.slot_epoch(), at.command_number()});
  const ClientPlan& plan = PlanOf(*slot);
  if (plan.poison > 0 && random_.Chance(plan.poison)) outcome.killed_by = &plan;
  if (item.has_ring() && !drafts.token_ids.empty()) {
    if (std::string error = TakeBlock(item, session, &drafts.q); !error.empty()) {
      result.set_ring_error(error);
      drafts = {};
    }
  }
  if (item.has_scores()) {
    AppendScored(item, slots, *slot, &result);
  } else {
    const uint32_t cached = slots.TakeCached(*slot, token_ids.first(token_ids.size() - 1),
                                             plan_->cache_hit_chance, random_);
    result.set_num_cached_tokens(cached);
    for (int32_t token : token_ids.subspan(cached)) Append(slots, *slot, token);
  }

  if (item.sample() && !Judge(drafts, *slot, slots, &result)) {
    result.Clear();
    slots.TruncateTo(*slot, at.length());
    slots.FillState(at, v1::WORKER_CODE_NON_FINITE_LOGITS, "logits", result.mutable_state());
  } else {
    if (item.has_propose() && PrepareHeads(*slot, slots, outcome)) {
      *result.mutable_proposal() =
          ProposeAfter(item.propose(), slots.LastRow(*slot), result.next_token_id());
    }
    slots.FillState(at, v1::WORKER_CODE_OK, "", result.mutable_state());
  }
  session.verified[at.slot()] = result;
  if (plan.is_answered_wrongly) {
    outcome.is_wrong = true;
    result.set_num_accepted(result.num_accepted() + 40);
  }
  return result;
}

}  // namespace tandem::simulator
