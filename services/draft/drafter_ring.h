// The drafter's end of a session's log-prob ring, over whichever transport the router chose.
#ifndef TANDEM_SERVICES_DRAFT_DRAFTER_RING_H_
#define TANDEM_SERVICES_DRAFT_DRAFTER_RING_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/ring_writer.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

class DrafterRing {
 public:
  using EmitChunk = std::function<void(v1::LogProbChunk chunk)>;

  // `model` must outlive the ring. `emit_chunk` sends a piece of a block to the router; only the
  // `inline` transport calls this function.
  DrafterRing(WorkerModel* model, EmitChunk emit_chunk)
      : model_(model), emit_chunk_(std::move(emit_chunk)) {}

  // Adds the transports that this worker supports, best first.
  void OfferTransports(v1::AttachReply& reply) const;

  // Closes the current ring, if any, and opens another. FAILED_PRECONDITION: the transport or the
  // vocabulary is not this worker's, or the memory is not the announced ring. INVALID_ARGUMENT: the
  // sizes are out of range.
  absl::Status Open(const v1::OpenRing& command, v1::OpenRingReply& reply);

  // Takes the entry that `ring` names, for at most `max_rows` rows, and returns the place of the
  // rows: [max_rows, vocabulary_size] f32, in host or device memory. The block ends with Commit or
  // Abandon. FAILED_PRECONDITION: no ring is open. Other errors are those of
  // RingWriter::BeginBlock.
  absl::StatusOr<std::span<float>> Begin(const v1::RingReference& ring, size_t max_rows);
  // The verifier may read the first `rows` rows of the block. PRECOND: 1 <= rows <= max_rows.
  void Commit(const v1::RingReference& ring, size_t rows);
  void Abandon(const v1::RingReference& ring);

 private:
  WorkerModel* model_;
  EmitChunk emit_chunk_;
  std::unique_ptr<RingWriter> writer_;  // null: no ring is open
  v1::RingTransport transport_ = v1::RING_TRANSPORT_UNSPECIFIED;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_DRAFTER_RING_H_
