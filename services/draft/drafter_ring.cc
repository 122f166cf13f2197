#include "services/draft/drafter_ring.h"

#include <cstdint>
#include <string>
#include <utility>

#include "common/ring/ring_socket.h"
#include "common/status.h"
#include "services/worker/session/wire.h"

namespace tandem {

void DrafterRing::OfferTransports(v1::AttachReply& reply) const {
  if (model_->open_ring_rows()) reply.add_transports(v1::RING_TRANSPORT_CUDA_IPC);
  reply.add_transports(v1::RING_TRANSPORT_SHM);
  reply.add_transports(v1::RING_TRANSPORT_INLINE);
}

absl::Status DrafterRing::Open(const v1::OpenRing& command, v1::OpenRingReply& reply) {
  writer_.reset();
  transport_ = command.transport();
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
      reply.set_nonce(writer->nonce());
      writer_ = std::move(writer);
      return absl::OkStatus();
    }
    case v1::RING_TRANSPORT_INLINE: {
      const auto emit_piece = [this](const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                                     std::span<const float> piece) {
        v1::LogProbChunk chunk;
        chunk.mutable_ring()->set_ring_epoch(ref.ring_epoch);
        chunk.mutable_ring()->set_entry(ref.entry);
        chunk.mutable_ring()->set_sequence(ref.sequence);
        chunk.set_rows(rows);
        chunk.set_offset_bytes(offset_bytes);
        chunk.set_data(piece.data(), piece.size_bytes());
        emit_chunk_(std::move(chunk));
      };
      TANDEM_ASSIGN_OR_RETURN(writer_, InlineRingWriter::Create(geometry, command.ring_epoch(),
                                                                emit_piece, model_->pin_memory()));
      reply.set_nonce(0);
      return absl::OkStatus();
    }
    default:
      return FailedPrecondition("ring: transport " + v1::RingTransport_Name(command.transport()) +
                                " is not one of this worker's");
  }
}

absl::StatusOr<std::span<float>> DrafterRing::Begin(const v1::RingReference& ring,
                                                    size_t max_rows) {
  if (writer_ == nullptr) return FailedPrecondition("ring: none is open");
  return writer_->BeginBlock(ToRingRef(ring), static_cast<uint32_t>(max_rows));
}

void DrafterRing::Commit(const v1::RingReference& ring, size_t rows) {
  writer_->CommitBlock(ToRingRef(ring), static_cast<uint32_t>(rows));
  model_->stats().ring_bytes[transport_] +=
      uint64_t{rows} * model_->vocabulary_size() * sizeof(float);
}

void DrafterRing::Abandon(const v1::RingReference& ring) { writer_->AbandonBlock(ToRingRef(ring)); }

}  // namespace tandem
