#include "services/draft/draft_session.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/ring/ring_socket.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/protocol.h"
#include "common/status.h"
#include "services/worker/stopwatch.h"
#include "services/worker/wire.h"

namespace tandem {

DraftSession::DraftSession(const WorkerModel* model, std::unique_ptr<Proposer> proposer)
    : model_(model), proposer_(std::move(proposer)) {
  if (proposer_ == nullptr) proposer_ = std::make_unique<HostProposer>(&model->model());
}

DraftSession::~DraftSession() {
  if (slots_.has_value()) --model_->stats().num_sessions;
}

absl::Status DraftSession::Handle(const v1::DraftCommand& command, const Emit& emit) {
  v1::DraftReply reply;
  reply.set_id(command.id());
  command_id_ = command.id();
  emit_ = &emit;
  absl::Status status;
  if (!slots_.has_value() && command.kind_case() != v1::DraftCommand::kAttach) {
    status = FailedPrecondition("the session is not attached");
  } else {
    switch (command.kind_case()) {
      case v1::DraftCommand::kAttach:
        status = Attach(command.attach(), reply);
        break;
      case v1::DraftCommand::kOpenRing:
        status = OpenRing(command.open_ring(), reply);
        break;
      case v1::DraftCommand::kPropose:
        Propose(command.propose(), *reply.mutable_propose());
        break;
      case v1::DraftCommand::kUpdateSlots:
        slots_->UpdateSlots(command.update_slots(), *reply.mutable_update_slots());
        break;
      case v1::DraftCommand::kReadVocabulary:
        ReadVocabulary(command.id(), emit);
        return absl::OkStatus();
      case v1::DraftCommand::KIND_NOT_SET:
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

absl::Status DraftSession::Attach(const v1::Attach& attach, v1::DraftReply& reply) {
  if (slots_.has_value()) return FailedPrecondition("the session is attached already");
  TANDEM_RETURN_IF_ERROR(CheckAttach(attach));
  slots_.emplace(&model_->caches(), model_->vocabulary_size(), attach.max_slots());
  ++model_->stats().num_sessions;
  max_draft_length_ = attach.max_draft_length();
  *reply.mutable_attach() = model_->Describe();
  if (model_->open_ring_rows()) {
    reply.mutable_attach()->add_transports(v1::RING_TRANSPORT_CUDA_IPC);
  }
  reply.mutable_attach()->add_transports(v1::RING_TRANSPORT_SHM);
  reply.mutable_attach()->add_transports(v1::RING_TRANSPORT_INLINE);
  return absl::OkStatus();
}

absl::Status DraftSession::OpenRing(const v1::OpenRing& command, v1::DraftReply& reply) {
  ring_.reset();
  ring_transport_ = command.transport();
  const RingGeometry geometry{.entries = command.entries(),
                              .rows_per_entry = command.rows_per_entry(),
                              .vocabulary_size = command.vocabulary_size()};
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  if (geometry.vocabulary_size != model_->vocabulary_size()) {
    return FailedPrecondition("ring: vocabulary_size is " +
                              std::to_string(geometry.vocabulary_size) + ", the draft model's is " +
                              std::to_string(model_->vocabulary_size()));
  }
  const bool on_device = command.transport() == v1::RING_TRANSPORT_CUDA_IPC;
  if (on_device && !model_->open_ring_rows()) {
    return FailedPrecondition("ring: this worker computes on no GPU");
  }
  switch (command.transport()) {
    case v1::RING_TRANSPORT_CUDA_IPC:
    case v1::RING_TRANSPORT_SHM: {
      TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, FetchRing(command.socket_path(), command.ring_epoch()));
      TANDEM_ASSIGN_OR_RETURN(auto writer,
                              SharedRingWriter::Open(std::move(fd), geometry, command.ring_epoch(),
                                                     on_device ? model_->open_ring_rows() : nullptr,
                                                     model_->pin_memory()));
      reply.mutable_open_ring()->set_nonce(writer->nonce());
      ring_ = std::move(writer);
      return absl::OkStatus();
    }
    case v1::RING_TRANSPORT_INLINE: {
      const auto emit_piece = [this](const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                                     std::span<const float> piece) {
        v1::DraftReply chunk_reply;
        chunk_reply.set_id(command_id_);
        v1::LogProbChunk& chunk = *chunk_reply.mutable_log_prob_chunk();
        chunk.mutable_ring()->set_ring_epoch(ref.ring_epoch);
        chunk.mutable_ring()->set_entry(ref.entry);
        chunk.mutable_ring()->set_sequence(ref.sequence);
        chunk.set_rows(rows);
        chunk.set_offset_bytes(offset_bytes);
        chunk.set_data(piece.data(), piece.size_bytes());
        (*emit_)(std::move(chunk_reply));
      };
      TANDEM_ASSIGN_OR_RETURN(ring_, InlineRingWriter::Create(geometry, command.ring_epoch(),
                                                              emit_piece, model_->pin_memory()));
      reply.mutable_open_ring()->set_nonce(0);
      return absl::OkStatus();
    }
    default:
      return FailedPrecondition("ring: transport " + v1::RingTransport_Name(command.transport()) +
                                " is not one of this worker's");
  }
}

absl::Status DraftSession::Prepare(const v1::ProposeItem& item, Slot& slot, Proposal& proposal,
                                   OpenBlock& block) {
  const std::span<const int32_t> token_ids = ToSpan(item.token_ids());
  TANDEM_RETURN_IF_ERROR(CheckTokenIds("token_ids", token_ids, model_->vocabulary_size()));
  if (item.draft_length() > max_draft_length_) {
    return InvalidArgument("draft_length: got " + std::to_string(item.draft_length()) +
                           ", the session was attached with at most " +
                           std::to_string(max_draft_length_));
  }
  if (item.draft_length() > 0 && token_ids.empty()) {
    return InvalidArgument("token_ids: empty, want at least the pending token to draft from");
  }
  const size_t capacity = slot.capacity();
  const size_t fed = item.at().length() + token_ids.size();
  if (fed > capacity) {
    return ResourceExhausted(std::to_string(fed) + " tokens, a slot of the drafter holds " +
                             std::to_string(capacity));
  }
  proposal.slot = &slot;
  proposal.token_ids = token_ids;
  // K tokens feed K - 1 rows more.
  proposal.draft_length = std::min<size_t>(item.draft_length(), capacity - fed + 1);
  // Greedy and coupled draws are judged without their distribution; a sampled one cannot be.
  const bool is_sampled = !slot.params().greedy() && !slot.params().reproducible;
  block.wanted = is_sampled && item.draft_length() > 0;
  if (block.wanted) {
    if (!item.has_ring()) {
      return InvalidArgument("ring: missing, but a sampled draft is judged by its distribution");
    }
    if (ring_ == nullptr) return FailedPrecondition("ring: none is open");
    block.ref = ToRingRef(item.ring());
    TANDEM_ASSIGN_OR_RETURN(
        proposal.draft_log_probs,
        ring_->BeginBlock(block.ref, static_cast<uint32_t>(proposal.draft_length)));
  }
  return absl::OkStatus();
}

absl::Status DraftSession::TakePages(const v1::ProposeItem& item, Proposal& proposal,
                                     v1::ProposeResult& result) {
  const bool drafts = proposal.draft_length > 0;
  TANDEM_ASSIGN_OR_RETURN(const size_t num_cached,
                          slots_->Execute(item.at(),
                                          {.token_ids = proposal.token_ids,
                                           // The last draft token is not fed.
                                           .num_more = drafts ? proposal.draft_length - 1 : 0,
                                           .needs_logits = drafts},
                                          *proposal.slot));
  proposal.token_ids = proposal.token_ids.subspan(num_cached);
  result.set_num_cached_tokens(static_cast<uint32_t>(num_cached));
  return absl::OkStatus();
}

void DraftSession::Propose(const v1::Propose& command, v1::ProposeReply& reply) {
  const Stopwatch total;
  double transfer_seconds = 0;
  if (command.has_update_slots()) {
    slots_->UpdateSlots(command.update_slots(), *reply.mutable_update_slots());
  }

  std::vector<Proposal> proposals;
  std::vector<OpenBlock> blocks;
  std::vector<v1::ProposeResult*> results;  // of the proposals
  std::vector<const v1::ProposeItem*> items;
  slots_->BeginBatch();
  for (const v1::ProposeItem& item : command.items()) {
    v1::ProposeResult& result = *reply.add_results();
    Slot* slot = slots_->Admit(item.at(), item.has_open() ? &item.open() : nullptr, result);
    if (slot == nullptr) continue;
    Proposal proposal;
    OpenBlock block;
    const Stopwatch transfer;
    absl::Status status = Prepare(item, *slot, proposal, block);
    if (block.wanted) transfer_seconds += transfer.seconds();
    if (status.ok()) {
      status = TakePages(item, proposal, result);
      if (!status.ok() && block.wanted) ring_->AbandonBlock(block.ref);
    }
    if (!status.ok()) {
      model_->CheckDevice(status);
      slots_->Refuse(item.at(), status, result);
      continue;
    }
    proposals.push_back(std::move(proposal));
    blocks.push_back(block);
    results.push_back(&result);
    items.push_back(&item);
  }

  const absl::Status status = proposer_->Run(proposals);
  model_->CheckDevice(status);
  for (size_t i = 0; i < proposals.size(); ++i) {
    const v1::SlotPoint& at = items[i]->at();
    Proposal& proposal = proposals[i];
    v1::ProposeResult& result = *results[i];
    if (status.ok()) {
      proposal.slot->Publish(at.length() + static_cast<size_t>(items[i]->token_ids_size()));
      // Pages of drafts that did not come about.
      proposal.slot->TruncateTo(proposal.slot->length());
      result.mutable_draft_token_ids()->Add(proposal.draft_token_ids.begin(),
                                            proposal.draft_token_ids.end());
    } else {
      proposal.slot->TruncateTo(at.length());
      slots_->Refuse(at, Internal(std::string(status.message())), result);
    }
    if (blocks[i].wanted) {
      const Stopwatch transfer;
      if (result.draft_token_ids().empty()) {
        ring_->AbandonBlock(blocks[i].ref);
      } else {
        const auto rows = static_cast<uint32_t>(result.draft_token_ids_size());
        ring_->CommitBlock(blocks[i].ref, rows);
        model_->stats().ring_bytes[ring_transport_] +=
            uint64_t{rows} * model_->vocabulary_size() * sizeof(float);
      }
      transfer_seconds += transfer.seconds();
    }
    slots_->Settle(at, *proposal.slot, result);
  }
  reply.set_num_free_pages(static_cast<uint32_t>(model_->caches().pages().num_free()));
  reply.set_transfer_seconds(transfer_seconds);
  reply.set_compute_seconds(total.seconds() - transfer_seconds);
  ++model_->stats().num_batches;
  model_->stats().compute_seconds += reply.compute_seconds();
  reply.set_catch_up_seconds(proposer_->catch_up_seconds());
}

void DraftSession::ReadVocabulary(uint64_t id, const Emit& emit) const {
  const Tokenizer& tokenizer = model_->tokenizer();
  const size_t num_entries = tokenizer.num_entries();
  size_t next = 0;
  bool last = false;
  while (!last) {
    v1::DraftReply reply;
    reply.set_id(id);
    v1::VocabularyChunk& chunk = *reply.mutable_vocabulary();
    chunk.set_first_id(static_cast<uint32_t>(next));
    for (size_t bytes = 0; next < num_entries && bytes < kMaxChunkBytes; ++next) {
      const std::string_view entry = tokenizer.Entry(static_cast<int32_t>(next));
      chunk.add_entries(entry.data(), entry.size());
      bytes += entry.size() + 4;
    }
    last = next == num_entries;
    chunk.set_last(last);
    emit(std::move(reply));
  }
}

}  // namespace tandem
