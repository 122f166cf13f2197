#include "common/ring/log_prob_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/ring/ring_writer.h"

namespace tandem::log_prob_ring_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RingGeometry kGeometry{.entries = 2, .rows_per_entry = 3, .vocabulary_size = 5};
constexpr uint64_t kEpoch = 77;

UniqueFd Duplicate(int fd) { return UniqueFd(dup(fd)); }

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// Both ends of one shared ring, in one process.
struct SharedPair {
  std::unique_ptr<LogProbRing> ring;
  std::unique_ptr<SharedRingWriter> writer;
};

SharedPair MakePair() {
  SharedPair pair;
  pair.ring = *LogProbRing::Create(kGeometry, kEpoch, /*shared=*/true);
  pair.writer = *SharedRingWriter::Open(Duplicate(pair.ring->fd()), kGeometry, kEpoch);
  EXPECT_TRUE(pair.ring->Confirm(pair.writer->nonce()).ok());
  return pair;
}

RingRef Ref(uint32_t entry, uint64_t sequence) {
  return {.ring_epoch = kEpoch, .entry = entry, .sequence = sequence};
}

// Writes `rows` rows of `value` and commits them.
void WriteBlock(RingWriter& writer, const RingRef& ref, uint32_t rows, float value) {
  const auto block = writer.BeginBlock(ref, rows);
  ASSERT_TRUE(block.ok()) << block.status();
  ASSERT_EQ(block->size(), rows * kGeometry.vocabulary_size);
  std::fill(block->begin(), block->end(), value);
  writer.CommitBlock(ref, rows);
}

TEST(RingGeometryTest, RefusesZeroAndAbsurdSizes) {
  EXPECT_TRUE(kGeometry.Check().ok());
  EXPECT_TRUE(
      (RingGeometry{.entries = 8, .rows_per_entry = 16, .vocabulary_size = 128256}.Check().ok()));
  for (const RingGeometry& geometry :
       {RingGeometry{.entries = 0, .rows_per_entry = 1, .vocabulary_size = 1},
        RingGeometry{.entries = 1, .rows_per_entry = 0, .vocabulary_size = 1},
        RingGeometry{.entries = 1, .rows_per_entry = 1, .vocabulary_size = 0},
        RingGeometry{.entries = ~0u, .rows_per_entry = 1, .vocabulary_size = 1},
        RingGeometry{.entries = 1, .rows_per_entry = ~0u, .vocabulary_size = 1},
        RingGeometry{.entries = 1, .rows_per_entry = 1, .vocabulary_size = ~0u},
        RingGeometry{.entries = 1024, .rows_per_entry = 64, .vocabulary_size = 1 << 20}}) {
    EXPECT_EQ(geometry.Check().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(LogProbRing::Create(geometry, kEpoch, false).ok());
  }
}

TEST(RingGeometryTest, PartsDoNotOverlap) {
  const RingGeometry many{.entries = 100, .rows_per_entry = 2, .vocabulary_size = 7};
  EXPECT_GE(many.rows_offset(), kRingPageBytes + 100 * sizeof(RingEntry));
  EXPECT_EQ(many.rows_offset() % kRingPageBytes, 0);
  EXPECT_EQ(many.total_bytes(), many.rows_offset() + 100 * 2 * 7 * sizeof(float));
}

TEST(LogProbRingTest, HandsTheRowsOver) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(1, 1), 2, -1.5f);
  const auto block = pair.ring->Acquire(Ref(1, 1), 2);
  ASSERT_TRUE(block.ok()) << block.status();
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(block->rows()[i], -1.5f);
}

TEST(LogProbRingTest, AnEntryIsFreeAfterItWasRead) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(0, 1), 1, -1.0f);
  {
    const auto block = pair.ring->Acquire(Ref(0, 1), 1);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ(pair.writer->BeginBlock(Ref(0, 2), 1).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << "the entry is being read";
    EXPECT_FALSE(pair.ring->Acquire(Ref(0, 1), 1).ok()) << "a block is read once";
  }
  EXPECT_FALSE(pair.ring->Acquire(Ref(0, 1), 1).ok()) << "a block is read once";
  WriteBlock(*pair.writer, Ref(0, 2), 1, -2.0f);
  EXPECT_TRUE(pair.ring->Acquire(Ref(0, 2), 1).ok());
}

TEST(LogProbRingTest, UncommittedAndAbandonedBlocksAreNotRead) {
  SharedPair pair = MakePair();
  ASSERT_TRUE(pair.writer->BeginBlock(Ref(0, 1), 1).ok());
  EXPECT_THAT(MessageOf(pair.ring->Acquire(Ref(0, 1), 1).status()), HasSubstr("not ready"));
  pair.writer->AbandonBlock(Ref(0, 1));
  EXPECT_FALSE(pair.ring->Acquire(Ref(0, 1), 1).ok());
  WriteBlock(*pair.writer, Ref(0, 2), 1, 0.0f);
  EXPECT_TRUE(pair.ring->Acquire(Ref(0, 2), 1).ok());
}

TEST(LogProbRingTest, ANewerSequenceDiscardsAnUnreadBlock) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(0, 1), 1, -1.0f);
  WriteBlock(*pair.writer, Ref(0, 2), 1, -2.0f);
  EXPECT_THAT(MessageOf(pair.ring->Acquire(Ref(0, 1), 1).status()), HasSubstr("holds sequence 2"));
  const auto block = pair.ring->Acquire(Ref(0, 2), 1);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block->rows()[0], -2.0f);
}

TEST(LogProbRingTest, OtherReferencesAreRefusedAndLeaveTheBlock) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(0, 5), 2, -1.0f);
  EXPECT_FALSE(pair.ring->Acquire({.ring_epoch = kEpoch - 1, .entry = 0, .sequence = 5}, 2).ok());
  EXPECT_FALSE(pair.ring->Acquire({.ring_epoch = kEpoch + 1, .entry = 0, .sequence = 5}, 2).ok());
  EXPECT_FALSE(pair.ring->Acquire(Ref(0, 4), 2).ok());
  EXPECT_FALSE(pair.ring->Acquire(Ref(0, 6), 2).ok());
  EXPECT_FALSE(pair.ring->Acquire(Ref(1, 5), 2).ok());
  EXPECT_EQ(pair.ring->Acquire(Ref(2, 5), 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.ring->Acquire(Ref(0, 5), 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.ring->Acquire(Ref(0, 5), 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(pair.ring->Acquire(Ref(0, 5), 2).ok());
}

TEST(LogProbRingTest, ABlockWithAnotherNumberOfRowsIsDropped) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(0, 1), 2, -1.0f);
  EXPECT_THAT(MessageOf(pair.ring->Acquire(Ref(0, 1), 3).status()), HasSubstr("holds 2 rows"));
  EXPECT_THAT(MessageOf(pair.ring->Acquire(Ref(0, 1), 2).status()), HasSubstr("not ready"));
}

TEST(LogProbRingTest, SizesInSharedMemoryAreNotTrusted) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(1, 1), 1, -3.0f);
  auto memory = RingMemory::MapShared(Duplicate(pair.ring->fd()), kGeometry.total_bytes());
  ASSERT_TRUE(memory.ok());
  const RingView view(memory->data(), kGeometry);
  view.header().geometry = {.entries = ~0u, .rows_per_entry = ~0u, .vocabulary_size = ~0u};
  view.entry(1).rows = ~0u;
  EXPECT_FALSE(pair.ring->Acquire(Ref(100, 1), 1).ok());
  EXPECT_FALSE(pair.ring->Acquire(Ref(1, 1), 1).ok());
  EXPECT_EQ(pair.ring->geometry(), kGeometry);
}

TEST(LogProbRingTest, NothingIsReadBeforeTheNonceIsConfirmed) {
  auto ring = *LogProbRing::Create(kGeometry, kEpoch, true);
  auto writer = *SharedRingWriter::Open(Duplicate(ring->fd()), kGeometry, kEpoch);
  WriteBlock(*writer, Ref(0, 1), 1, 0.0f);
  EXPECT_THAT(MessageOf(ring->Acquire(Ref(0, 1), 1).status()), HasSubstr("confirmed"));
  EXPECT_EQ(ring->Confirm(writer->nonce() + 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ring->Confirm(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(ring->Acquire(Ref(0, 1), 1).ok());
  EXPECT_TRUE(ring->Confirm(writer->nonce()).ok());
  EXPECT_TRUE(ring->Acquire(Ref(0, 1), 1).ok());
}

TEST(LogProbRingTest, ANonceWithoutAnEchoInTheRingIsNotConfirmed) {
  auto ring = *LogProbRing::Create(kGeometry, kEpoch, true);
  auto memory = RingMemory::MapShared(Duplicate(ring->fd()), kGeometry.total_bytes());
  const uint64_t nonce = RingView(memory->data(), kGeometry).header().nonce;
  EXPECT_NE(nonce, 0);
  EXPECT_THAT(MessageOf(ring->Confirm(nonce)), HasSubstr("do not arrive"));
}

TEST(SharedRingWriterTest, RefusesBadReferences) {
  SharedPair pair = MakePair();
  WriteBlock(*pair.writer, Ref(0, 5), 1, 0.0f);
  EXPECT_FALSE(pair.writer->BeginBlock(Ref(0, 5), 1).ok()) << "a sequence is used once";
  EXPECT_FALSE(pair.writer->BeginBlock(Ref(0, 4), 1).ok());
  EXPECT_FALSE(pair.writer->BeginBlock(Ref(1, 0), 1).ok());
  EXPECT_FALSE(pair.writer->BeginBlock(Ref(2, 6), 1).ok());
  EXPECT_FALSE(pair.writer->BeginBlock(Ref(0, 6), 0).ok());
  EXPECT_FALSE(pair.writer->BeginBlock(Ref(0, 6), 4).ok());
  EXPECT_EQ(
      pair.writer->BeginBlock({.ring_epoch = 1, .entry = 0, .sequence = 6}, 1).status().code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(pair.ring->Acquire(Ref(0, 5), 1).ok()) << "refused references change nothing";
}

TEST(SharedRingWriterTest, RefusesAnotherRingThanAnnounced) {
  auto ring = *LogProbRing::Create(kGeometry, kEpoch, true);
  EXPECT_FALSE(SharedRingWriter::Open(Duplicate(ring->fd()), kGeometry, kEpoch + 1).ok());
  RingGeometry other = kGeometry;
  other.vocabulary_size = 6;
  EXPECT_THAT(MessageOf(SharedRingWriter::Open(Duplicate(ring->fd()), other, kEpoch).status()),
              HasSubstr("bytes"));
  // The size is the same, but the shape is different.
  const RingGeometry swapped{.entries = 2, .rows_per_entry = 5, .vocabulary_size = 3};
  ASSERT_EQ(swapped.total_bytes(), kGeometry.total_bytes());
  EXPECT_THAT(MessageOf(SharedRingWriter::Open(Duplicate(ring->fd()), swapped, kEpoch).status()),
              HasSubstr("another shape"));
}

TEST(SharedRingWriterTest, RefusesMemoryThatIsNoRing) {
  auto memory = RingMemory::CreateShared(kGeometry.total_bytes());
  ASSERT_TRUE(memory.ok());
  EXPECT_THAT(
      MessageOf(SharedRingWriter::Open(Duplicate(memory->fd()), kGeometry, kEpoch).status()),
      HasSubstr("no ring"));
}

std::vector<std::string> Pieces(const std::vector<float>& values, size_t piece_floats) {
  std::vector<std::string> pieces;
  for (size_t i = 0; i < values.size(); i += piece_floats) {
    const size_t n = std::min(piece_floats, values.size() - i);
    pieces.emplace_back(reinterpret_cast<const char*>(values.data() + i), n * sizeof(float));
  }
  return pieces;
}

class InlineRingTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ring_->Confirm(0).ok()); }

  std::unique_ptr<LogProbRing> ring_ = *LogProbRing::Create(kGeometry, kEpoch, /*shared=*/false);
  const std::vector<float> values_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};  // two rows
};

TEST_F(InlineRingTest, PiecesMakeABlock) {
  const auto pieces = Pieces(values_, 4);
  uint64_t offset = 0;
  for (const std::string& piece : pieces) {
    EXPECT_FALSE(ring_->Acquire(Ref(0, 1), 2).ok()) << "not before the last piece";
    ASSERT_TRUE(ring_->AcceptChunk(Ref(0, 1), 2, offset, piece).ok());
    offset += piece.size();
  }
  const auto block = ring_->Acquire(Ref(0, 1), 2);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(std::memcmp(block->rows(), values_.data(), 40), 0);
}

TEST_F(InlineRingTest, GapsOverlapsAndDisorderDropTheBlock) {
  const auto pieces = Pieces(values_, 4);  // at 0, 16 and 32
  struct Case {
    const char* what;
    uint64_t sequence;
    uint32_t rows;
    uint64_t offset;
  };
  uint64_t sequence = 1;
  for (const Case& second :
       {Case{"gap", 0, 2, 20}, Case{"overlap", 0, 2, 12}, Case{"again", 0, 2, 0},
        Case{"other sequence", 1, 2, 16}, Case{"other rows", 0, 3, 16}}) {
    ASSERT_TRUE(ring_->AcceptChunk(Ref(0, sequence), 2, 0, pieces[0]).ok()) << second.what;
    EXPECT_EQ(
        ring_
            ->AcceptChunk(Ref(0, sequence + second.sequence), second.rows, second.offset, pieces[1])
            .code(),
        absl::StatusCode::kInvalidArgument)
        << second.what;
    // No later piece completes the block.
    EXPECT_FALSE(ring_->AcceptChunk(Ref(0, sequence), 2, 16, pieces[1]).ok()) << second.what;
    EXPECT_FALSE(ring_->AcceptChunk(Ref(0, sequence), 2, 32, pieces[2]).ok()) << second.what;
    EXPECT_FALSE(ring_->Acquire(Ref(0, sequence), 2).ok()) << second.what;
    sequence += 2;
  }
  EXPECT_FALSE(ring_->AcceptChunk(Ref(1, 1), 2, 16, pieces[1]).ok()) << "a middle without a start";
}

TEST_F(InlineRingTest, RefusesPiecesOfBadSize) {
  const std::string whole = Pieces(values_, 10)[0];
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 1), 2, 0, "").ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 2), 2, 0, whole.substr(0, 7)).ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 3), 2, 0, whole + "more").ok()) << "past the block";
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 4), 2, ~uint64_t{3}, whole).ok()) << "overflow";
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 5), 2, 40, whole).ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 6), 0, 0, whole).ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 7), 4, 0, whole).ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(2, 8), 2, 0, whole).ok());
  EXPECT_FALSE(ring_->AcceptChunk({.ring_epoch = 1, .entry = 0, .sequence = 9}, 2, 0, whole).ok());
  const RingGeometry large{.entries = 1, .rows_per_entry = 1, .vocabulary_size = 1 << 19};
  auto ring = *LogProbRing::Create(large, kEpoch, false);
  EXPECT_FALSE(ring->AcceptChunk(Ref(0, 1), 1, 0, std::string((1 << 20) + 4, '\0')).ok())
      << "over 1 MiB";
  EXPECT_TRUE(ring->AcceptChunk(Ref(0, 1), 1, 0, std::string(1 << 20, '\0')).ok());
}

TEST_F(InlineRingTest, OldSequencesAndEntriesBeingReadAreRefused) {
  const std::string whole = Pieces(values_, 10)[0];
  ASSERT_TRUE(ring_->AcceptChunk(Ref(0, 3), 2, 0, whole).ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 3), 2, 0, whole).ok());
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 2), 2, 0, whole).ok());
  const auto block = ring_->Acquire(Ref(0, 3), 2);
  ASSERT_TRUE(block.ok()) << "late pieces of older blocks do no harm";
  EXPECT_FALSE(ring_->AcceptChunk(Ref(0, 4), 2, 0, whole).ok());
}

TEST_F(InlineRingTest, SharedRingsTakeNoPieces) {
  auto shared = *LogProbRing::Create(kGeometry, kEpoch, true);
  EXPECT_FALSE(shared->AcceptChunk(Ref(0, 1), 2, 0, Pieces(values_, 10)[0]).ok());
}

TEST(InlineRingWriterTest, CutsBlocksIntoPiecesThatTheRingAccepts) {
  // A row has 1.5 MiB, so pieces end in the middle of rows.
  const RingGeometry geometry{.entries = 1, .rows_per_entry = 2, .vocabulary_size = 393216};
  auto ring = *LogProbRing::Create(geometry, kEpoch, false);
  ASSERT_TRUE(ring->Confirm(0).ok());
  std::vector<size_t> sizes;
  const auto created = InlineRingWriter::Create(
      geometry, kEpoch,
      [&](const RingRef& ref, uint32_t rows, uint64_t offset, std::span<const float> piece) {
        sizes.push_back(piece.size_bytes());
        const std::string_view bytes(reinterpret_cast<const char*>(piece.data()),
                                     piece.size_bytes());
        EXPECT_TRUE(ring->AcceptChunk(ref, rows, offset, bytes).ok());
      });
  ASSERT_TRUE(created.ok()) << created.status();
  InlineRingWriter& writer = **created;
  auto rows = writer.BeginBlock(Ref(0, 1), 2);
  ASSERT_TRUE(rows.ok());
  for (size_t i = 0; i < rows->size(); ++i) (*rows)[i] = static_cast<float>(i);
  writer.CommitBlock(Ref(0, 1), 2);
  EXPECT_THAT(sizes, ElementsAre(1 << 20, 1 << 20, 1 << 20));
  {
    const auto block = ring->Acquire(Ref(0, 1), 2);
    ASSERT_TRUE(block.ok()) << block.status();
    for (size_t i = 0; i < rows->size(); i += 1001) {
      ASSERT_EQ(block->rows()[i], static_cast<float>(i));
    }
  }
  ASSERT_TRUE(writer.BeginBlock(Ref(0, 2), 2).ok());
  writer.AbandonBlock(Ref(0, 2));
  EXPECT_EQ(sizes.size(), 3) << "an abandoned block sends nothing";
  ASSERT_TRUE(writer.BeginBlock(Ref(0, 3), 2).ok());
  writer.CommitBlock(Ref(0, 3), 1);
  EXPECT_TRUE(ring->Acquire(Ref(0, 3), 1).ok()) << "fewer rows than asked for";
  EXPECT_FALSE(writer.BeginBlock(Ref(0, 3), 1).ok());
  EXPECT_FALSE(writer.BeginBlock(Ref(1, 4), 1).ok());
  EXPECT_FALSE(writer.BeginBlock({.ring_epoch = 1, .entry = 0, .sequence = 9}, 1).ok());
}

// Memory that a device copies from and to is pinned exactly while it is mapped.
TEST(RingWriterTest, EachEndPinsTheMemoryThatItHasMapped) {
  std::vector<std::pair<void*, size_t>> pinned;
  size_t num_live = 0;
  const PinMemory pin = [&](void* memory, size_t bytes) {
    pinned.emplace_back(memory, bytes);
    ++num_live;
    return std::shared_ptr<void>(memory, [&](void*) { --num_live; });
  };
  for (const bool shared : {true, false}) {
    pinned.clear();
    auto ring = *LogProbRing::Create(kGeometry, kEpoch, shared, pin);
    std::unique_ptr<RingWriter> writer;
    if (shared) {
      writer = *SharedRingWriter::Open(Duplicate(ring->fd()), kGeometry, kEpoch, {}, pin);
    } else {
      writer = *InlineRingWriter::Create(
          kGeometry, kEpoch, [](const RingRef&, uint32_t, uint64_t, std::span<const float>) {},
          pin);
    }
    ASSERT_EQ(pinned.size(), 2u);
    EXPECT_EQ(num_live, 2u);
    const auto rows = writer->BeginBlock(Ref(1, 1), 3);
    ASSERT_TRUE(rows.ok()) << rows.status();
    const auto* const begin = static_cast<const std::byte*>(pinned[1].first);
    EXPECT_GE(reinterpret_cast<const std::byte*>(rows->data()), begin);
    EXPECT_LE(reinterpret_cast<const std::byte*>(rows->data() + rows->size()),
              begin + pinned[1].second);
    writer.reset();
    EXPECT_EQ(num_live, 1u);
    ring.reset();
    EXPECT_EQ(num_live, 0u);
  }
  const PinMemory refuses = [](void*, size_t) { return nullptr; };
  const auto ring = LogProbRing::Create(kGeometry, kEpoch, true, refuses);
  ASSERT_TRUE(ring.ok());
  EXPECT_TRUE(SharedRingWriter::Open(Duplicate((*ring)->fd()), kGeometry, kEpoch, {}, refuses).ok())
      << "a refusal only costs speed";
}

// If a router names one entry in two items of a batch, two slots must not write to the same place.
TEST(RingWriterTest, AnEntryThatIsBeingFilledIsNotGivenOutAgain) {
  SharedPair pair = MakePair();
  const auto inline_writer = *InlineRingWriter::Create(
      kGeometry, kEpoch, [](const RingRef&, uint32_t, uint64_t, std::span<const float>) {});
  for (RingWriter* writer : {static_cast<RingWriter*>(pair.writer.get()),
                             static_cast<RingWriter*>(inline_writer.get())}) {
    const auto first = writer->BeginBlock(Ref(0, 1), 1);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = writer->BeginBlock(Ref(0, 2), 3);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(MessageOf(second.status()), HasSubstr("being filled"));
    std::fill(first->begin(), first->end(), -1.0f);
    writer->CommitBlock(Ref(0, 1), 1);
    EXPECT_TRUE(writer->BeginBlock(Ref(0, 3), 3).ok()) << "committed";
    writer->AbandonBlock(Ref(0, 3));
    EXPECT_TRUE(writer->BeginBlock(Ref(0, 4), 3).ok()) << "abandoned";
  }
}

}  // namespace
}  // namespace tandem::log_prob_ring_test
