#include "services/verifier/verifier_ring.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "kernels/sampling/accept_reject.h"
#include "services/worker/session/wire.h"

namespace tandem {

RingEpochs::RingEpochs()
    : last_(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count())) {}

SessionRings::~SessionRings() {
  for (Ring& ring : rings_) Drop(ring);
}

void SessionRings::OfferTransports(v1::AttachReply& reply) const {
  if (offers_device_memory()) reply.add_transports(v1::RING_TRANSPORT_CUDA_IPC);
  if (listener_ != nullptr) reply.add_transports(v1::RING_TRANSPORT_SHM);
  reply.add_transports(v1::RING_TRANSPORT_INLINE);
}

void SessionRings::Drop(Ring& ring) {
  if (ring.memory == nullptr) return;
  std::vector<UniqueFd> peers;
  if (ring.memory->shared()) peers = listener_->Withdraw(ring.memory->ring_epoch());
  if (ring.memory->on_device()) {
    shared_->retired.Add(std::move(ring.memory), std::move(peers));
  } else {
    ring.memory.reset();
  }
}

absl::StatusOr<size_t> SessionRings::Find(uint64_t ring_epoch) const {
  for (size_t i = 0; i < rings_.size(); ++i) {
    const LogProbRing* memory = rings_[i].memory.get();
    if (memory != nullptr && memory->ring_epoch() == ring_epoch) return i;
  }
  return FailedPrecondition("ring: no ring of epoch " + std::to_string(ring_epoch));
}

absl::Status SessionRings::CheckNumber(uint32_t draft_model_number) const {
  if (draft_model_number < rings_.size()) return absl::OkStatus();
  return InvalidArgument("ring: draft_model_number is " + std::to_string(draft_model_number) +
                         ", want 0 … " + std::to_string(rings_.size() - 1));
}

absl::Status SessionRings::DropOf(uint32_t draft_model_number) {
  TANDEM_RETURN_IF_ERROR(CheckNumber(draft_model_number));
  Drop(rings_[draft_model_number]);
  return absl::OkStatus();
}

absl::Status SessionRings::Create(const v1::CreateRing& command, v1::CreateRingReply& reply) {
  TANDEM_RETURN_IF_ERROR(CheckNumber(command.draft_model_number()));
  Ring& ring = rings_[command.draft_model_number()];
  Drop(ring);
  ring.transport = command.transport();
  const bool on_device = ring.transport == v1::RING_TRANSPORT_CUDA_IPC && offers_device_memory();
  const bool shared =
      on_device || (ring.transport == v1::RING_TRANSPORT_SHM && listener_ != nullptr);
  if (!shared && ring.transport != v1::RING_TRANSPORT_INLINE) {
    return FailedPrecondition("ring: transport " + v1::RingTransport_Name(ring.transport) +
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
  const uint64_t epoch = shared_->epochs.Next();
  if (on_device) {
    if (shared_->retired.Sweep() > RetiredRings::kMaxWaiting) {
      return ResourceExhausted("ring: drafters still have " +
                               std::to_string(RetiredRings::kMaxWaiting + 1) +
                               " earlier rings of the GPU's memory open");
    }
    TANDEM_ASSIGN_OR_RETURN(
        ring.memory, LogProbRing::CreateOnDevice(geometry, epoch, model_->create_ring_rows()));
  } else {
    TANDEM_ASSIGN_OR_RETURN(ring.memory,
                            LogProbRing::Create(geometry, epoch, shared, model_->pin_memory()));
  }
  if (shared) {
    TANDEM_RETURN_IF_ERROR(listener_->Offer(epoch, ring.memory->fd()));
    reply.set_socket_path(listener_->path().string());
  }
  reply.set_ring_epoch(epoch);
  reply.set_ring_bytes(ring.memory->bytes());
  return absl::OkStatus();
}

absl::Status SessionRings::Confirm(const v1::ConfirmRing& command) {
  TANDEM_ASSIGN_OR_RETURN(const size_t number, Find(command.ring_epoch()));
  return rings_[number].memory->Confirm(command.nonce());
}

void SessionRings::AcceptChunk(const v1::LogProbChunk& chunk) {
  const absl::StatusOr<size_t> number = Find(chunk.ring().ring_epoch());
  const absl::Status status =
      number.ok() ? rings_[*number].memory->AcceptChunk(ToRingRef(chunk.ring()), chunk.rows(),
                                                        chunk.offset_bytes(), chunk.data())
                  : number.status();
  if (!status.ok()) spdlog::warn("dropped a piece of q rows: {}", std::string(status.message()));
}

void SessionRings::BeginBatch() {
  for (const Ring& ring : rings_) {
    if (ring.memory != nullptr) ring.memory->BeginBatch();
  }
}

absl::StatusOr<SessionRings::DraftBlock> SessionRings::Take(
    const v1::RingReference& reference, std::span<const int32_t> draft_token_ids) {
  TANDEM_ASSIGN_OR_RETURN(const size_t number, Find(reference.ring_epoch()));
  TANDEM_ASSIGN_OR_RETURN(RingBlock block,
                          rings_[number].memory->Acquire(
                              ToRingRef(reference), static_cast<uint32_t>(draft_token_ids.size())));
  const size_t vocabulary_size = model_->vocabulary_size();
  const size_t num_checked = judge_checks_rows_ ? 0 : draft_token_ids.size();
  for (size_t i = 0; i < num_checked; ++i) {
    const std::span<const float> row(block.rows() + i * vocabulary_size, vocabulary_size);
    if (IsDraftRowValid(row, draft_token_ids[i])) continue;
    return absl::DataLossError("ring entry " + std::to_string(reference.entry()) + ": row " +
                               std::to_string(i) + " is no distribution that gives token " +
                               std::to_string(draft_token_ids[i]));
  }
  return DraftBlock{std::move(block), static_cast<uint8_t>(number)};
}

void SessionRings::CountError(const v1::RingReference& reference, RingError reason) {
  // A reference to no ring counts with the first one.
  const Ring& ring = rings_[Find(reference.ring_epoch()).value_or(0)];
  ++model_->stats().ring_errors[{ring.transport, reason}];
}

}  // namespace tandem
