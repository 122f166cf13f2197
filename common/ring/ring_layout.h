// How a log-prob ring lies in memory, the same in every transport that has host memory.
//
//   page 0          RingHeader
//   page 1 …        RingEntry [entries], 64 bytes each
//   rows_offset()   f32 [entries, rows_per_entry, vocabulary_size], page-aligned
//
// If the rows lie in device memory (`cuda_ipc`), handles take their place:
//
//   rows_offset()   bytes [1 + entries, 64]: the handle of the memory, and of each entry's event
//
// Numbers are little-endian, and atomics are lock-free: both ends are builds of one release on one
// host.
#ifndef TANDEM_COMMON_RING_RING_LAYOUT_H_
#define TANDEM_COMMON_RING_RING_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace tandem {

inline constexpr uint64_t kRingMagic = 0x474E4952444E4154;  // "TANDRING"
inline constexpr uint32_t kRingVersion = 2;
inline constexpr size_t kRingPageBytes = 4096;
inline constexpr size_t kRingHandleBytes = 64;

// Names one use of one entry: v1::RingReference.
struct RingRef {
  uint64_t ring_epoch = 0;
  uint32_t entry = 0;
  uint64_t sequence = 0;
};

struct RingGeometry {
  uint32_t entries = 0;
  uint32_t rows_per_entry = 0;
  uint32_t vocabulary_size = 0;

  bool operator==(const RingGeometry&) const = default;
  // INVALID_ARGUMENT for a size that is zero or absurd. The sizes below cannot overflow after this
  // check.
  absl::Status Check() const;

  size_t row_bytes() const { return size_t{vocabulary_size} * sizeof(float); }
  size_t entry_bytes() const { return rows_per_entry * row_bytes(); }
  size_t rows_offset() const;
  size_t total_bytes() const { return rows_offset() + entries * entry_bytes(); }
  // Bytes in host memory if the rows lie in device memory.
  size_t control_bytes() const { return rows_offset() + (size_t{1} + entries) * kRingHandleBytes; }
};

// The drafter sets FREE -> FILLING -> READY, and the verifier sets READY -> CONSUMING -> FREE. The
// drafter sets FILLING -> FREE if a block is given up. A reference with a newer sequence discards
// the block that the entry holds: READY -> FILLING.
enum class RingEntryState : uint32_t { kFree = 0, kFilling = 1, kReady = 2, kConsuming = 3 };

// Says whether a drafter has the device memory open, which must then not be freed. The drafter sets
// NONE -> OPEN -> CLOSED. The verifier sets NONE -> WITHDRAWN, and withdrawn memory is never
// opened.
enum class RingAttachment : uint32_t { kNone = 0, kOpen = 1, kClosed = 2, kWithdrawn = 3 };

// The verifier writes the header before it hands out the descriptor. Later the drafter writes
// `echo`, and both write `attachment`.
struct RingHeader {
  uint64_t magic;
  uint32_t version;
  RingGeometry geometry;
  uint64_t ring_epoch;
  uint64_t nonce;
  std::atomic<uint64_t> echo;  // ~nonce from the drafter, which shows that its writes arrive
  std::atomic<RingAttachment> attachment;  // used by `cuda_ipc`
};

// The drafter writes every field except `state`, while the entry is FILLING.
struct alignas(64) RingEntry {
  std::atomic<RingEntryState> state;
  uint32_t rows;
  uint64_t ring_epoch;
  uint64_t sequence;
};

static_assert(sizeof(RingHeader) <= kRingPageBytes);
static_assert(sizeof(RingEntry) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<RingEntryState>::is_always_lock_free);

// The parts of a ring in mapped memory. The geometry is a copy of the process that holds the view
// and was checked once, so nothing in shared memory decides where this process reads or writes.
class RingView {
 public:
  RingView() = default;
  RingView(std::byte* base, const RingGeometry& geometry) : base_(base), geometry_(geometry) {}

  const RingGeometry& geometry() const { return geometry_; }
  RingHeader& header() const { return *reinterpret_cast<RingHeader*>(base_); }
  // PRECOND of entry() and rows(): entry < geometry().entries.
  RingEntry& entry(uint32_t entry) const {
    return reinterpret_cast<RingEntry*>(base_ + kRingPageBytes)[entry];
  }
  // [1 + entries] handles, if the rows lie in device memory.
  std::byte* handles() const { return base_ + geometry_.rows_offset(); }
  float* rows(uint32_t entry) const {
    return reinterpret_cast<float*>(base_ + geometry_.rows_offset() +
                                    entry * geometry_.entry_bytes());
  }

 private:
  std::byte* base_ = nullptr;
  RingGeometry geometry_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_LAYOUT_H_
