// Tests the log-prob ring with a lying peer: shared memory with any contents, and pieces of any
// shape.
//
// The input is a byte that chooses the case, and then the operations of the case.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "common/ring/log_prob_ring.h"
#include "common/ring/ring_writer.h"
#include "kernels/sampling/accept_reject.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"

namespace tandem::fuzz {
namespace {

constexpr RingGeometry kGeometry{.entries = 2, .rows_per_entry = 2, .vocabulary_size = 4};
constexpr uint64_t kEpoch = 7;

// The other process's view of the memory.
class Mapping {
 public:
  explicit Mapping(int fd)
      : data_(static_cast<std::byte*>(
            mmap(nullptr, kGeometry.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))) {
    Check(data_ != MAP_FAILED, "the ring can be mapped");
  }
  ~Mapping() { munmap(data_, kGeometry.total_bytes()); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void Write(size_t offset, std::string_view bytes) const {
    const size_t room = kGeometry.total_bytes() - offset;
    std::memcpy(data_ + offset, bytes.data(), std::min(bytes.size(), room));
  }
  RingHeader& header() const { return RingView(data_, kGeometry).header(); }

 private:
  std::byte* data_;
};

// Reads mostly small numbers, so that the entry, the sequence and the epoch are often right.
RingRef ReadRef(FuzzInput& input) {
  const uint8_t shape = input.Byte();
  return {.ring_epoch = (shape & 0x80) != 0 ? input.Short() : kEpoch,
          .entry = shape & 3u,
          .sequence = (shape & 0x40) != 0 ? uint64_t{input.Short()} << 48 : shape >> 2 & 7u};
}

void CheckRow(const float* row, int32_t token_id) {
  if (!IsDraftRowValid({row, kGeometry.vocabulary_size}, token_id)) return;
  double sum = 0;
  for (size_t i = 0; i < kGeometry.vocabulary_size; ++i) sum += std::exp(double{row[i]});
  Check(std::abs(sum - 1) < 1e-2, "a valid row is a distribution");
  Check(std::exp(double{row[token_id]}) > 0, "a valid row gives its token");
}

void AcquireBlocks(LogProbRing& ring, FuzzInput& input) {
  while (!input.empty()) {
    const RingRef ref = ReadRef(input);
    const uint32_t rows = input.Byte() % 4;
    const auto block = ring.Acquire(ref, rows);
    if (!block.ok()) continue;
    Check(ref.entry < kGeometry.entries && rows >= 1 && rows <= kGeometry.rows_per_entry,
          "a returned block belongs to the ring");
    const int32_t token_id = input.Byte() % 6 - 1;
    for (uint32_t row = 0; row < rows; ++row) {
      CheckRow(block->rows() + row * kGeometry.vocabulary_size, token_id);
    }
  }
}

// The drafter writes arbitrary bytes.
void ReadFromShared(FuzzInput& input) {
  const auto ring = *LogProbRing::Create(kGeometry, kEpoch, /*shared=*/true);
  const Mapping drafter(ring->fd());
  if (input.Byte() % 8 != 0) drafter.header().echo = ~drafter.header().nonce;
  (void)ring->Confirm(input.Byte() % 8 != 0 ? drafter.header().nonce : 1);
  drafter.Write(kRingPageBytes, input.Chunk());           // entries
  drafter.Write(kGeometry.rows_offset(), input.Chunk());  // rows
  AcquireBlocks(*ring, input);
}

void ReadFromPieces(FuzzInput& input) {
  const auto ring = *LogProbRing::Create(kGeometry, kEpoch, /*shared=*/false);
  Check(ring->Confirm(0).ok(), "inline needs no nonce");
  for (unsigned pieces = input.Byte() % 8; pieces > 0; --pieces) {
    const RingRef ref = ReadRef(input);
    const uint32_t rows = input.Byte() % 4;
    const uint32_t offset_bytes = input.Byte();
    (void)ring->AcceptChunk(ref, rows, offset_bytes, input.Chunk());
  }
  AcquireBlocks(*ring, input);
}

// The verifier's memory holds arbitrary bytes.
void WriteToShared(FuzzInput& input) {
  const auto ring = *LogProbRing::Create(kGeometry, kEpoch, /*shared=*/true);
  const Mapping verifier(ring->fd());
  verifier.Write(0, input.Chunk());
  verifier.Write(kRingPageBytes, input.Chunk());
  const auto writer = SharedRingWriter::Open(UniqueFd(dup(ring->fd())), kGeometry, kEpoch);
  if (!writer.ok()) return;
  while (!input.empty()) {
    const RingRef ref = ReadRef(input);
    const uint32_t max_rows = input.Byte() % 4;
    const auto rows = (*writer)->BeginBlock(ref, max_rows);
    if (!rows.ok()) continue;
    Check(rows->size() == size_t{max_rows} * kGeometry.vocabulary_size && max_rows <= 2,
          "a block has the rows that were asked for");
    std::fill(rows->begin(), rows->end(), -1.0f);
    if (input.Byte() % 2 == 0) {
      (*writer)->CommitBlock(ref, max_rows);
    } else {
      (*writer)->AbandonBlock(ref);
    }
  }
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::fuzz::FuzzInput input(data, size);
  switch (input.Byte() % 3) {
    case 0:
      tandem::fuzz::ReadFromShared(input);
      break;
    case 1:
      tandem::fuzz::ReadFromPieces(input);
      break;
    default:
      tandem::fuzz::WriteToShared(input);
      break;
  }
  return 0;
}
