#include "common/ring/ring_writer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxPieceFloats = (1 << 20) / sizeof(float);

absl::Status CheckReference(const RingRef& ref, uint32_t max_rows, const RingGeometry& geometry,
                            uint64_t ring_epoch, const std::vector<uint64_t>& last_sequences) {
  if (ref.ring_epoch != ring_epoch) {
    return FailedPrecondition("ring epoch " + std::to_string(ref.ring_epoch) +
                              ", the open ring's is " + std::to_string(ring_epoch));
  }
  if (ref.entry >= geometry.entries) {
    return InvalidArgument("ring entry " + std::to_string(ref.entry) + ", want less than " +
                           std::to_string(geometry.entries));
  }
  if (max_rows == 0 || max_rows > geometry.rows_per_entry) {
    return InvalidArgument("ring entry " + std::to_string(ref.entry) + ": " +
                           std::to_string(max_rows) + " rows, want 1 … " +
                           std::to_string(geometry.rows_per_entry));
  }
  if (ref.sequence <= last_sequences[ref.entry]) {
    return InvalidArgument("ring entry " + std::to_string(ref.entry) + ": sequence " +
                           std::to_string(ref.sequence) + " is not newer than " +
                           std::to_string(last_sequences[ref.entry]));
  }
  return absl::OkStatus();
}

absl::Status BeingFilled(const RingRef& ref) {
  return FailedPrecondition("ring entry " + std::to_string(ref.entry) + " is being filled");
}

// Opens the rows in device memory that the ring names.
absl::StatusOr<std::unique_ptr<OpenedRingRows>> Attach(const RingView& ring,
                                                       const OpenRingRows& open_rows) {
  std::atomic<RingAttachment>& attachment = ring.header().attachment;
  RingAttachment before = RingAttachment::kNone;
  if (!attachment.compare_exchange_strong(before, RingAttachment::kOpen)) {
    return FailedPrecondition("ring: the verifier has withdrawn it, or it was opened before");
  }
  std::vector<RingHandle> handles(size_t{1} + ring.geometry().entries);
  std::memcpy(handles.data(), ring.handles(), handles.size() * sizeof(RingHandle));
  absl::StatusOr<std::unique_ptr<OpenedRingRows>> rows = open_rows(ring.geometry(), handles);
  if (rows.ok()) {
    if (absl::Status echoed = (*rows)->EchoNonce(ring.header().nonce); !echoed.ok()) {
      rows = std::move(echoed);  // closes the rows
    }
  }
  if (!rows.ok()) attachment.store(RingAttachment::kClosed, std::memory_order_release);
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedRingWriter>> SharedRingWriter::Open(
    UniqueFd fd, const RingGeometry& geometry, uint64_t ring_epoch, const OpenRingRows& open_rows,
    const PinMemory& pin) {
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  const size_t bytes = open_rows ? geometry.control_bytes() : geometry.total_bytes();
  TANDEM_ASSIGN_OR_RETURN(RingMemory memory, RingMemory::MapShared(std::move(fd), bytes));
  const RingHeader& header = RingView(memory.data(), geometry).header();
  if (header.magic != kRingMagic || header.version != kRingVersion) {
    return FailedPrecondition("ring: the memory is no ring of version " +
                              std::to_string(kRingVersion));
  }
  if (header.geometry != geometry || header.ring_epoch != ring_epoch) {
    return FailedPrecondition("ring: the memory has another shape or epoch than announced");
  }
  std::unique_ptr<OpenedRingRows> device_rows;
  if (open_rows) {
    TANDEM_ASSIGN_OR_RETURN(device_rows, Attach(RingView(memory.data(), geometry), open_rows));
  } else {
    memory.Pin(pin);
  }
  return std::unique_ptr<SharedRingWriter>(
      new SharedRingWriter(std::move(memory), std::move(device_rows), geometry, ring_epoch));
}

SharedRingWriter::~SharedRingWriter() {
  if (device_rows_ == nullptr) return;
  device_rows_.reset();
  view_.header().attachment.store(RingAttachment::kClosed, std::memory_order_release);
}

SharedRingWriter::SharedRingWriter(RingMemory memory, std::unique_ptr<OpenedRingRows> device_rows,
                                   const RingGeometry& geometry, uint64_t ring_epoch)
    : memory_(std::move(memory)),
      device_rows_(std::move(device_rows)),
      view_(memory_.data(), geometry),
      ring_epoch_(ring_epoch),
      nonce_(view_.header().nonce),
      last_sequences_(geometry.entries) {
  view_.header().echo.store(~nonce_, std::memory_order_release);
}

absl::StatusOr<std::span<float>> SharedRingWriter::BeginBlock(const RingRef& ref,
                                                              uint32_t max_rows) {
  TANDEM_RETURN_IF_ERROR(
      CheckReference(ref, max_rows, view_.geometry(), ring_epoch_, last_sequences_));
  RingEntry& entry = view_.entry(ref.entry);
  RingEntryState state = entry.state.load(std::memory_order_acquire);
  if (state == RingEntryState::kFilling) return BeingFilled(ref);
  if (state == RingEntryState::kConsuming ||
      !entry.state.compare_exchange_strong(state, RingEntryState::kFilling,
                                           std::memory_order_acquire)) {
    return FailedPrecondition("ring entry " + std::to_string(ref.entry) + " is being read");
  }
  last_sequences_[ref.entry] = ref.sequence;
  entry.ring_epoch = ref.ring_epoch;
  entry.sequence = ref.sequence;
  return std::span<float>(
      device_rows_ != nullptr ? device_rows_->rows(ref.entry) : view_.rows(ref.entry),
      size_t{max_rows} * view_.geometry().vocabulary_size);
}

void SharedRingWriter::CommitBlock(const RingRef& ref, uint32_t rows) {
  // Rows without a recorded event count as missing, because nobody can wait for them.
  if (device_rows_ != nullptr && !device_rows_->RecordReady(ref.entry).ok()) {
    return AbandonBlock(ref);
  }
  RingEntry& entry = view_.entry(ref.entry);
  entry.rows = rows;
  entry.state.store(RingEntryState::kReady, std::memory_order_release);
}

void SharedRingWriter::AbandonBlock(const RingRef& ref) {
  view_.entry(ref.entry).state.store(RingEntryState::kFree, std::memory_order_release);
}

absl::StatusOr<std::unique_ptr<InlineRingWriter>> InlineRingWriter::Create(
    const RingGeometry& geometry, uint64_t ring_epoch, EmitPiece emit, const PinMemory& pin) {
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  TANDEM_ASSIGN_OR_RETURN(RingMemory memory, RingMemory::CreatePrivate(geometry.total_bytes()));
  memory.Pin(pin);
  return std::unique_ptr<InlineRingWriter>(
      new InlineRingWriter(std::move(memory), geometry, ring_epoch, std::move(emit)));
}

InlineRingWriter::InlineRingWriter(RingMemory memory, const RingGeometry& geometry,
                                   uint64_t ring_epoch, EmitPiece emit)
    : memory_(std::move(memory)),
      view_(memory_.data(), geometry),
      ring_epoch_(ring_epoch),
      emit_(std::move(emit)),
      last_sequences_(geometry.entries),
      filling_(geometry.entries) {}

absl::StatusOr<std::span<float>> InlineRingWriter::BeginBlock(const RingRef& ref,
                                                              uint32_t max_rows) {
  TANDEM_RETURN_IF_ERROR(
      CheckReference(ref, max_rows, view_.geometry(), ring_epoch_, last_sequences_));
  if (filling_[ref.entry]) return BeingFilled(ref);
  filling_[ref.entry] = true;
  last_sequences_[ref.entry] = ref.sequence;
  return std::span<float>(view_.rows(ref.entry),
                          size_t{max_rows} * view_.geometry().vocabulary_size);
}

void InlineRingWriter::CommitBlock(const RingRef& ref, uint32_t rows) {
  filling_[ref.entry] = false;
  const std::span<const float> block(view_.rows(ref.entry),
                                     size_t{rows} * view_.geometry().vocabulary_size);
  for (size_t i = 0; i < block.size(); i += kMaxPieceFloats) {
    emit_(ref, rows, i * sizeof(float),
          block.subspan(i, std::min(kMaxPieceFloats, block.size() - i)));
  }
}

void InlineRingWriter::AbandonBlock(const RingRef& ref) { filling_[ref.entry] = false; }

}  // namespace tandem
