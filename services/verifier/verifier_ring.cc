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

void VerifierRing::OfferTransports(v1::AttachReply& reply) const {
  if (offers_device_memory()) reply.add_transports(v1::RING_TRANSPORT_CUDA_IPC);
  if (listener_ != nullptr) reply.add_transports(v1::RING_TRANSPORT_SHM);
  reply.add_transports(v1::RING_TRANSPORT_INLINE);
}

void VerifierRing::Drop() {
  if (ring_ == nullptr) return;
  std::vector<UniqueFd> peers;
  if (ring_->shared()) peers = listener_->Withdraw(ring_->ring_epoch());
  if (ring_->on_device()) {
    rings_->retired.Add(std::move(ring_), std::move(peers));
  } else {
    ring_.reset();
  }
}

absl::Status VerifierRing::Create(const v1::CreateRing& command, v1::CreateRingReply& reply) {
  Drop();
  transport_ = command.transport();
  const bool on_device = transport_ == v1::RING_TRANSPORT_CUDA_IPC && offers_device_memory();
  const bool shared = on_device || (transport_ == v1::RING_TRANSPORT_SHM && listener_ != nullptr);
  if (!shared && transport_ != v1::RING_TRANSPORT_INLINE) {
    return FailedPrecondition("ring: transport " + v1::RingTransport_Name(transport_) +
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
    TANDEM_RETURN_IF_ERROR(listener_->Offer(ring_->ring_epoch(), ring_->fd()));
    reply.set_socket_path(listener_->path().string());
  }
  reply.set_ring_epoch(ring_->ring_epoch());
  reply.set_ring_bytes(ring_->bytes());
  return absl::OkStatus();
}

absl::Status VerifierRing::Confirm(const v1::ConfirmRing& command) {
  if (ring_ == nullptr || ring_->ring_epoch() != command.ring_epoch()) {
    return FailedPrecondition("ring: no ring of epoch " + std::to_string(command.ring_epoch()));
  }
  return ring_->Confirm(command.nonce());
}

void VerifierRing::AcceptChunk(const v1::LogProbChunk& chunk) {
  const absl::Status status = ring_ == nullptr
                                  ? FailedPrecondition("ring: none was created")
                                  : ring_->AcceptChunk(ToRingRef(chunk.ring()), chunk.rows(),
                                                       chunk.offset_bytes(), chunk.data());
  if (!status.ok()) spdlog::warn("dropped a piece of q rows: {}", std::string(status.message()));
}

void VerifierRing::BeginBatch() {
  if (ring_ != nullptr) ring_->BeginBatch();
}

absl::StatusOr<RingBlock> VerifierRing::Take(const v1::RingReference& ring,
                                             std::span<const int32_t> draft_token_ids) {
  if (ring_ == nullptr) return FailedPrecondition("ring: none was created");
  TANDEM_ASSIGN_OR_RETURN(
      RingBlock block,
      ring_->Acquire(ToRingRef(ring), static_cast<uint32_t>(draft_token_ids.size())));
  if (judge_checks_rows_) return block;
  const size_t vocabulary_size = model_->vocabulary_size();
  for (size_t i = 0; i < draft_token_ids.size(); ++i) {
    const std::span<const float> row(block.rows() + i * vocabulary_size, vocabulary_size);
    if (IsDraftRowValid(row, draft_token_ids[i])) continue;
    return absl::DataLossError("ring entry " + std::to_string(ring.entry()) + ": row " +
                               std::to_string(i) + " is no distribution that gives token " +
                               std::to_string(draft_token_ids[i]));
  }
  return block;
}

void VerifierRing::CountError(RingError reason) {
  ++model_->stats().ring_errors[{transport_, reason}];
}

}  // namespace tandem
