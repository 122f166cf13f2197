#include "common/ring/log_prob_ring.h"

#include <cstring>
#include <new>
#include <random>
#include <string>

#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxPieceBytes = 1 << 20;
// A drafter waits for its kernels before it reports a block. A longer wait means a wrong report or
// a GPU that hangs.
constexpr std::chrono::seconds kReadyTimeout{1};

// Never returns 0, which means "nothing is shared".
uint64_t NewNonce() {
  std::random_device source;
  return (uint64_t{source()} << 32 | source()) | 1;
}

std::string Describe(const RingRef& ref) {
  return "ring entry " + std::to_string(ref.entry) + ", sequence " + std::to_string(ref.sequence);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogProbRing>> LogProbRing::Create(const RingGeometry& geometry,
                                                                 uint64_t ring_epoch, bool shared,
                                                                 const PinMemory& pin) {
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  TANDEM_ASSIGN_OR_RETURN(RingMemory memory,
                          shared ? RingMemory::CreateShared(geometry.total_bytes())
                                 : RingMemory::CreatePrivate(geometry.total_bytes()));
  memory.Pin(pin);
  return std::unique_ptr<LogProbRing>(
      new LogProbRing(std::move(memory), nullptr, geometry, ring_epoch, NewNonce()));
}

absl::StatusOr<std::unique_ptr<LogProbRing>> LogProbRing::CreateOnDevice(
    const RingGeometry& geometry, uint64_t ring_epoch, const CreateRingRows& create_rows) {
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  TANDEM_ASSIGN_OR_RETURN(RingMemory memory, RingMemory::CreateShared(geometry.control_bytes()));
  const uint64_t nonce = NewNonce();
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RingRows> rows, create_rows(geometry, nonce));
  const std::span<const RingHandle> handles = rows->handles();
  if (handles.size() != size_t{1} + geometry.entries) {
    return Internal("ring: " + std::to_string(handles.size()) +
                    " handles, want one for the memory " + "and one for each entry");
  }
  std::memcpy(RingView(memory.data(), geometry).handles(), handles.data(), handles.size_bytes());
  return std::unique_ptr<LogProbRing>(
      new LogProbRing(std::move(memory), std::move(rows), geometry, ring_epoch, nonce));
}

LogProbRing::LogProbRing(RingMemory memory, std::unique_ptr<RingRows> device_rows,
                         const RingGeometry& geometry, uint64_t ring_epoch, uint64_t nonce)
    : memory_(std::move(memory)),
      device_rows_(std::move(device_rows)),
      view_(memory_.data(), geometry),
      ring_epoch_(ring_epoch),
      nonce_(nonce),
      arrivals_(geometry.entries) {
  RingHeader* header = new (memory_.data()) RingHeader();
  header->magic = kRingMagic;
  header->version = kRingVersion;
  header->geometry = geometry;
  header->ring_epoch = ring_epoch;
  header->nonce = nonce;
  for (uint32_t i = 0; i < geometry.entries; ++i) new (&view_.entry(i)) RingEntry();
}

bool LogProbRing::Withdraw() {
  RingAttachment attachment = RingAttachment::kNone;
  std::atomic<RingAttachment>& shared = view_.header().attachment;
  if (shared.compare_exchange_strong(attachment, RingAttachment::kWithdrawn)) return true;
  return attachment != RingAttachment::kOpen;
}

void LogProbRing::BeginBatch() {
  ready_deadline_ = std::chrono::steady_clock::now() + kReadyTimeout;
}

absl::Status LogProbRing::Confirm(uint64_t nonce) {
  const uint64_t want = shared() ? nonce_ : 0;
  if (nonce != want) {
    return FailedPrecondition("ring: the drafter did not read the nonce of this ring");
  }
  if (shared() && view_.header().echo.load(std::memory_order_acquire) != ~nonce_) {
    return FailedPrecondition("ring: the drafter's writes do not arrive");
  }
  if (on_device()) {
    TANDEM_ASSIGN_OR_RETURN(const uint64_t echo, device_rows_->ReadEcho());
    if (echo != ~nonce_) {
      return FailedPrecondition("ring: the drafter's writes to the device do not arrive");
    }
  }
  confirmed_ = true;
  return absl::OkStatus();
}

absl::Status LogProbRing::CheckReference(const RingRef& ref, uint32_t rows) const {
  if (ref.ring_epoch != ring_epoch_) {
    return FailedPrecondition("ring epoch " + std::to_string(ref.ring_epoch) + ", this ring's is " +
                              std::to_string(ring_epoch_));
  }
  if (ref.entry >= geometry().entries) {
    return InvalidArgument("ring entry " + std::to_string(ref.entry) + ", want less than " +
                           std::to_string(geometry().entries));
  }
  if (rows == 0 || rows > geometry().rows_per_entry) {
    return InvalidArgument(Describe(ref) + ": " + std::to_string(rows) + " rows, want 1 … " +
                           std::to_string(geometry().rows_per_entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<RingBlock> LogProbRing::Acquire(const RingRef& ref, uint32_t rows) {
  if (!confirmed_) return FailedPrecondition("ring: the drafter has not confirmed it");
  TANDEM_RETURN_IF_ERROR(CheckReference(ref, rows));
  RingEntry& entry = view_.entry(ref.entry);
  // The other fields are only valid in state READY, which is stored after them.
  RingEntryState state = entry.state.load(std::memory_order_acquire);
  if (state != RingEntryState::kReady) {
    return FailedPrecondition(Describe(ref) + ": not ready (state " +
                              std::to_string(static_cast<uint32_t>(state)) + ")");
  }
  if (entry.ring_epoch != ring_epoch_ || entry.sequence != ref.sequence) {
    return FailedPrecondition(Describe(ref) + ": holds sequence " + std::to_string(entry.sequence) +
                              " of ring epoch " + std::to_string(entry.ring_epoch));
  }
  if (!entry.state.compare_exchange_strong(state, RingEntryState::kConsuming,
                                           std::memory_order_acquire)) {
    return FailedPrecondition(Describe(ref) + ": the entry was taken during the check");
  }
  RingBlock block(&entry, on_device() ? device_rows_->rows(ref.entry) : view_.rows(ref.entry));
  if (const uint32_t held = entry.rows; held != rows) {
    return FailedPrecondition(Describe(ref) + ": holds " + std::to_string(held) + " rows, want " +
                              std::to_string(rows));
  }
  if (on_device()) {
    TANDEM_RETURN_IF_ERROR(device_rows_->AwaitReady(ref.entry, ready_deadline_));
  }
  return block;
}

absl::Status LogProbRing::CheckChunk(const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                                     std::string_view data) const {
  if (shared()) return InvalidArgument(Describe(ref) + ": a piece came for a shared ring");
  if (data.empty() || data.size() > kMaxPieceBytes || data.size() % sizeof(float) != 0) {
    return InvalidArgument(Describe(ref) + ": a piece of " + std::to_string(data.size()) +
                           " bytes, want a multiple of 4 up to " + std::to_string(kMaxPieceBytes));
  }
  const uint64_t block_bytes = rows * geometry().row_bytes();
  if (offset_bytes > block_bytes || data.size() > block_bytes - offset_bytes) {
    return InvalidArgument(Describe(ref) + ": a piece of " + std::to_string(data.size()) +
                           " bytes at " + std::to_string(offset_bytes) + " of a block of " +
                           std::to_string(block_bytes));
  }
  const Arrival& arrival = arrivals_[ref.entry];
  const RingEntryState state = view_.entry(ref.entry).state.load(std::memory_order_relaxed);
  if (offset_bytes == 0) {
    if (ref.sequence <= arrival.sequence) {
      return InvalidArgument(Describe(ref) + ": not newer than " +
                             std::to_string(arrival.sequence));
    }
    if (state == RingEntryState::kConsuming) {
      return InvalidArgument(Describe(ref) + ": the entry is being read");
    }
    return absl::OkStatus();
  }
  if (!arrival.arriving || arrival.sequence != ref.sequence || arrival.rows != rows ||
      arrival.received_bytes != offset_bytes) {
    return InvalidArgument(Describe(ref) + ": a piece at " + std::to_string(offset_bytes) +
                           " that does not continue the one before it (" +
                           std::to_string(arrival.received_bytes) + " bytes of sequence " +
                           std::to_string(arrival.sequence) + ")");
  }
  return absl::OkStatus();
}

absl::Status LogProbRing::AcceptChunk(const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                                      std::string_view data) {
  TANDEM_RETURN_IF_ERROR(CheckReference(ref, rows));
  RingEntry& entry = view_.entry(ref.entry);
  Arrival& arrival = arrivals_[ref.entry];
  if (absl::Status status = CheckChunk(ref, rows, offset_bytes, data); !status.ok()) {
    // If the pieces of a block do not fit together, no part of the block is used.
    if (arrival.arriving) {
      arrival.arriving = false;
      entry.state.store(RingEntryState::kFree, std::memory_order_relaxed);
    }
    return status;
  }
  if (offset_bytes == 0) {
    arrival = {.sequence = ref.sequence, .rows = rows, .received_bytes = 0, .arriving = true};
    entry.state.store(RingEntryState::kFilling, std::memory_order_relaxed);
    entry.rows = rows;
    entry.ring_epoch = ref.ring_epoch;
    entry.sequence = ref.sequence;
  }
  std::memcpy(reinterpret_cast<std::byte*>(view_.rows(ref.entry)) + offset_bytes, data.data(),
              data.size());
  arrival.received_bytes += data.size();
  if (arrival.received_bytes == rows * geometry().row_bytes()) {
    arrival.arriving = false;
    entry.state.store(RingEntryState::kReady, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

}  // namespace tandem
