#include "services/verifier/verifier_session.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/status.h"
#include "services/worker/stopwatch.h"
#include "services/worker/wire.h"

namespace tandem {
namespace {

void WriteVerdict(const BlockVerdict& verdict, v1::VerifyResult& result) {
  result.set_num_accepted(static_cast<uint32_t>(verdict.num_accepted));
  result.set_next_token_id(verdict.next_token_id);
  for (const TokenLogProbs& token : verdict.log_probs) {
    v1::TokenLogprobs& written = *result.add_logprobs();
    written.set_logprob(token.log_prob);
    for (const TopLogProb& top : token.top) {
      v1::TopLogprob& entry = *written.add_top();
      entry.set_token_id(top.token_id);
      entry.set_logprob(top.log_prob);
    }
  }
  for (const AuditSample& sample : verdict.audit) {
    v1::AuditSample& written = *result.add_audit();
    written.set_uniform(sample.uniform);
    written.set_draft_mode_excess(sample.draft_mode_excess);
  }
}

RingError ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return RingError::kBadRows;
    case absl::StatusCode::kFailedPrecondition:
      return RingError::kFailedPrecondition;
    case absl::StatusCode::kInvalidArgument:
      return RingError::kInvalidArgument;
    default:
      return RingError::kInternal;
  }
}

}  // namespace

RingEpochs::RingEpochs()
    : last_(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count())) {}

VerifierSession::VerifierSession(const WorkerModel* model, RingListener* ring_listener,
                                 VerifierRings* rings, std::unique_ptr<Judge> judge)
    : model_(model), ring_listener_(ring_listener), rings_(rings), judge_(std::move(judge)) {
  if (judge_ == nullptr) judge_ = std::make_unique<HostJudge>(&model->model());
}

VerifierSession::~VerifierSession() {
  DropRing();
  if (slots_.has_value()) --model_->stats().num_sessions;
}

absl::Status VerifierSession::Handle(const v1::VerifierCommand& command, const Emit& emit) {
  v1::VerifierReply reply;
  reply.set_id(command.id());
  rings_->retired.Sweep();
  absl::Status status;
  if (!slots_.has_value() && command.kind_case() != v1::VerifierCommand::kAttach) {
    status = FailedPrecondition("the session is not attached");
  } else {
    switch (command.kind_case()) {
      case v1::VerifierCommand::kAttach:
        status = Attach(command.attach(), *reply.mutable_attach());
        break;
      case v1::VerifierCommand::kCreateRing:
        status = CreateRing(command.create_ring(), *reply.mutable_create_ring());
        break;
      case v1::VerifierCommand::kConfirmRing:
        status = ConfirmRing(command.confirm_ring());
        reply.mutable_confirm_ring();
        break;
      case v1::VerifierCommand::kVerify:
        Verify(command.verify(), *reply.mutable_verify());
        break;
      case v1::VerifierCommand::kUpdateSlots:
        slots_->UpdateSlots(command.update_slots(), *reply.mutable_update_slots());
        break;
      case v1::VerifierCommand::kLogProbChunk:
        AcceptChunk(command.log_prob_chunk());
        return absl::OkStatus();
      case v1::VerifierCommand::KIND_NOT_SET:
        status = InvalidArgument("the command is empty or of another release");
        break;
    }
  }
  if (!status.ok()) {
    model_->CheckDevice(status);
    reply.mutable_error()->set_code(ToWorkerCode(status.code()));
    reply.mutable_error()->set_message(std::string(status.message()));
  }
  emit(std::move(reply));
  // A router that cannot attach cannot do anything else.
  return slots_.has_value() ? absl::OkStatus() : status;
}

absl::Status VerifierSession::Attach(const v1::Attach& attach, v1::AttachReply& reply) {
  if (slots_.has_value()) return FailedPrecondition("the session is attached already");
  TANDEM_RETURN_IF_ERROR(CheckAttach(attach));
  slots_.emplace(&model_->caches(), model_->vocabulary_size(), attach.max_slots());
  ++model_->stats().num_sessions;
  max_draft_length_ = attach.max_draft_length();
  reply = model_->Describe();
  if (ring_listener_ != nullptr) {
    if (SharesDevice()) reply.add_transports(v1::RING_TRANSPORT_CUDA_IPC);
    reply.add_transports(v1::RING_TRANSPORT_SHM);
  }
  reply.add_transports(v1::RING_TRANSPORT_INLINE);
  return absl::OkStatus();
}

void VerifierSession::DropRing() {
  if (ring_ == nullptr) return;
  std::vector<UniqueFd> peers;
  if (ring_->shared()) peers = ring_listener_->Withdraw(ring_->ring_epoch());
  if (ring_->on_device()) {
    rings_->retired.Add(std::move(ring_), std::move(peers));
  } else {
    ring_.reset();
  }
}

absl::Status VerifierSession::CreateRing(const v1::CreateRing& command,
                                         v1::CreateRingReply& reply) {
  DropRing();
  ring_transport_ = command.transport();
  const bool on_device = command.transport() == v1::RING_TRANSPORT_CUDA_IPC &&
                         ring_listener_ != nullptr && SharesDevice();
  const bool shared =
      on_device || (command.transport() == v1::RING_TRANSPORT_SHM && ring_listener_ != nullptr);
  if (!shared && command.transport() != v1::RING_TRANSPORT_INLINE) {
    return FailedPrecondition("ring: transport " + v1::RingTransport_Name(command.transport()) +
                              " is not one of this worker's");
  }
  if (command.vocabulary_size() != model_->vocabulary_size()) {
    return FailedPrecondition(
        "ring: vocabulary_size is " + std::to_string(command.vocabulary_size()) +
        ", the target model's is " + std::to_string(model_->vocabulary_size()));
  }
  const RingGeometry geometry{.entries = command.entries(),
                              .rows_per_entry = command.rows_per_entry(),
                              .vocabulary_size = command.vocabulary_size()};
  if (on_device) {
    if (rings_->retired.Sweep() > RetiredRings::kMaxWaiting) {
      return ResourceExhausted("ring: drafters still have " +
                               std::to_string(RetiredRings::kMaxWaiting + 1) +
                               " earlier rings of the GPU's memory open");
    }
    TANDEM_ASSIGN_OR_RETURN(ring_, LogProbRing::CreateOnDevice(geometry, rings_->epochs.Next(),
                                                               model_->create_ring_rows()));
  } else {
    TANDEM_ASSIGN_OR_RETURN(
        ring_, LogProbRing::Create(geometry, rings_->epochs.Next(), shared, model_->pin_memory()));
  }
  if (shared) {
    TANDEM_RETURN_IF_ERROR(ring_listener_->Offer(ring_->ring_epoch(), ring_->fd()));
    reply.set_socket_path(ring_listener_->path().string());
  }
  reply.set_ring_epoch(ring_->ring_epoch());
  reply.set_ring_bytes(ring_->bytes());
  return absl::OkStatus();
}

absl::Status VerifierSession::ConfirmRing(const v1::ConfirmRing& command) {
  if (ring_ == nullptr || ring_->ring_epoch() != command.ring_epoch()) {
    return FailedPrecondition("ring: no ring of epoch " + std::to_string(command.ring_epoch()));
  }
  return ring_->Confirm(command.nonce());
}

void VerifierSession::AcceptChunk(const v1::LogProbChunk& chunk) {
  // A piece has no reply: a block that lacks one is found out, and reported, when it is to be
  // judged.
  const absl::Status status = ring_ == nullptr
                                  ? FailedPrecondition("ring: none was created")
                                  : ring_->AcceptChunk(ToRingRef(chunk.ring()), chunk.rows(),
                                                       chunk.offset_bytes(), chunk.data());
  if (!status.ok()) spdlog::warn("dropped a piece of q rows: {}", std::string(status.message()));
}

absl::Status VerifierSession::Prepare(const v1::VerifyItem& item, Slot& slot,
                                      Judgement& judgement) const {
  const std::span<const int32_t> token_ids = ToSpan(item.token_ids());
  const std::span<const int32_t> draft_token_ids = ToSpan(item.draft_token_ids());
  const size_t vocabulary_size = model_->vocabulary_size();
  TANDEM_RETURN_IF_ERROR(CheckTokenIds("token_ids", token_ids, vocabulary_size));
  TANDEM_RETURN_IF_ERROR(CheckTokenIds("draft_token_ids", draft_token_ids, vocabulary_size));
  TANDEM_RETURN_IF_ERROR(CheckChain(ToSpan(item.parents()), draft_token_ids.size()));
  if (token_ids.empty()) {
    return InvalidArgument("token_ids: empty, want at least the pending token");
  }
  if (draft_token_ids.size() > max_draft_length_) {
    return InvalidArgument("draft_token_ids: " + std::to_string(draft_token_ids.size()) +
                           ", the session was attached with at most " +
                           std::to_string(max_draft_length_));
  }
  if (!item.sample() && !draft_token_ids.empty()) {
    return InvalidArgument("draft_token_ids: given, but `sample` is false");
  }
  const size_t rows = item.at().length() + token_ids.size() + draft_token_ids.size();
  if (rows > slot.capacity()) {
    return ResourceExhausted(std::to_string(rows) + " tokens, a slot of the verifier holds " +
                             std::to_string(slot.capacity()));
  }
  judgement.slot = &slot;
  judgement.token_ids = token_ids;
  judgement.draft_token_ids = draft_token_ids;
  judgement.sample = item.sample();
  return absl::OkStatus();
}

absl::Status VerifierSession::TakePages(const v1::VerifyItem& item, Judgement& judgement,
                                        v1::VerifyResult& result) {
  TANDEM_ASSIGN_OR_RETURN(const size_t num_cached,
                          slots_->Execute(item.at(),
                                          {.token_ids = judgement.token_ids,
                                           .num_more = judgement.draft_token_ids.size(),
                                           .needs_logits = judgement.sample},
                                          *judgement.slot));
  judgement.token_ids = judgement.token_ids.subspan(num_cached);
  result.set_num_cached_tokens(static_cast<uint32_t>(num_cached));
  return absl::OkStatus();
}

absl::StatusOr<RingBlock> VerifierSession::TakeBlock(const v1::VerifyItem& item) {
  if (ring_ == nullptr) return FailedPrecondition("ring: none was created");
  const std::span<const int32_t> drafts = ToSpan(item.draft_token_ids());
  TANDEM_ASSIGN_OR_RETURN(RingBlock block, ring_->Acquire(ToRingRef(item.ring()),
                                                          static_cast<uint32_t>(drafts.size())));
  if (judge_->checks_draft_rows()) return block;
  const size_t vocabulary_size = model_->vocabulary_size();
  for (size_t i = 0; i < drafts.size(); ++i) {
    if (IsDraftRowValid({block.rows() + i * vocabulary_size, vocabulary_size}, drafts[i])) continue;
    return absl::DataLossError("ring entry " + std::to_string(item.ring().entry()) + ": row " +
                               std::to_string(i) + " is no distribution that gives token " +
                               std::to_string(drafts[i]));
  }
  return block;
}

void VerifierSession::CountRingError(RingError reason) {
  ++model_->stats().ring_errors[{ring_transport_, reason}];
}

void VerifierSession::Verify(const v1::Verify& command, v1::VerifyReply& reply) {
  const Stopwatch total;
  double transfer_seconds = 0;
  if (command.has_update_slots()) {
    slots_->UpdateSlots(command.update_slots(), *reply.mutable_update_slots());
  }

  std::vector<Judgement> judgements;
  std::vector<RingBlock> blocks;           // held until the verdicts are in
  std::vector<v1::VerifyResult*> results;  // of the judgements
  std::vector<const v1::VerifyItem*> items;
  slots_->BeginBatch();
  if (ring_ != nullptr) ring_->BeginBatch();
  for (const v1::VerifyItem& item : command.items()) {
    v1::VerifyResult& result = *reply.add_results();
    Slot* slot = slots_->Admit(item.at(), item.has_open() ? &item.open() : nullptr, result);
    if (slot == nullptr) continue;
    Judgement judgement;
    absl::Status status = Prepare(item, *slot, judgement);
    if (status.ok()) status = TakePages(item, judgement, result);
    if (!status.ok()) {
      model_->CheckDevice(status);
      slots_->Refuse(item.at(), status, result);
      continue;
    }
    const SamplingParams& params = judgement.slot->params();
    const bool is_sampled = !params.greedy() && !params.reproducible;
    if (item.has_ring() && is_sampled && !judgement.draft_token_ids.empty()) {
      const Stopwatch transfer;
      if (absl::StatusOr<RingBlock> block = TakeBlock(item); block.ok()) {
        judgement.draft_log_probs = block->rows();
        blocks.push_back(*std::move(block));
      } else {
        // Dropped unjudged, whatever was drawn: the round decodes plainly.
        judgement.draft_token_ids = {};
        result.set_ring_error(std::string(block.status().message()));
        CountRingError(ReasonOf(block.status()));
      }
      transfer_seconds += transfer.seconds();
    }
    judgements.push_back(std::move(judgement));
    results.push_back(&result);
    items.push_back(&item);
  }

  const absl::Status status = judge_->Run(judgements);
  model_->CheckDevice(status);
  for (size_t i = 0; i < judgements.size(); ++i) {
    const v1::SlotPoint& at = items[i]->at();
    const Judgement& judgement = judgements[i];
    v1::VerifyResult& result = *results[i];
    if (!status.ok()) {
      judgement.slot->TruncateTo(at.length());
      slots_->Refuse(at, Internal(std::string(status.message())), result);
    } else if (judgement.sample && !judgement.verdict.finite) {
      slots_->Refuse(at, absl::DataLossError("the target's logits hold NaN or infinity"), result);
    } else if (judgement.sample) {
      WriteVerdict(judgement.verdict, result);
      if (!judgement.drafts_valid) {
        result.set_ring_error("ring entry " + std::to_string(items[i]->ring().entry()) +
                              ": a row is no distribution that gives its token");
        CountRingError(RingError::kBadRows);
      }
    }
    if (status.ok()) judgement.slot->Publish(judgement.slot->length());
    slots_->Settle(at, *judgement.slot, result);
  }
  const CachePool& caches = model_->caches();
  reply.set_num_free_pages(static_cast<uint32_t>(caches.pages().num_free()));
  reply.set_num_open_slots(static_cast<uint32_t>(caches.size() - caches.num_free()));
  reply.set_transfer_seconds(transfer_seconds);
  reply.set_compute_seconds(total.seconds() - transfer_seconds);
  ++model_->stats().num_batches;
  model_->stats().compute_seconds += reply.compute_seconds();
}

}  // namespace tandem
