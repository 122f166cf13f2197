#include "services/router/engine/sessions/ring_credits.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

constexpr RingCredits::Shape kShape = {3, 4, 64};

void Negotiate(RingCredits* ring, uint64_t epoch) {
  ASSERT_TRUE(ring->Start(kShape, {v1::RING_TRANSPORT_SHM}).has_value());
  v1::CreateRingReply created;
  created.set_ring_epoch(epoch);
  ring->Created(created);
  ring->Opened(v1::OpenRingReply());
  ring->Confirmed();
}

TEST(RingCreditsTest, NegotiatesInThreeSteps) {
  RingCredits ring;
  EXPECT_FALSE(ring.Acquire().has_value());
  const auto create = ring.Start(kShape, {v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE});
  ASSERT_TRUE(create.has_value());
  EXPECT_EQ(create->transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_EQ(create->entries(), 3u);
  EXPECT_EQ(create->rows_per_entry(), 4u);
  v1::CreateRingReply created;
  created.set_ring_epoch(9);
  created.set_socket_path("/run/ring");
  const v1::OpenRing open = ring.Created(created);
  EXPECT_EQ(open.ring_epoch(), 9u);
  EXPECT_EQ(open.socket_path(), "/run/ring");
  v1::OpenRingReply opened;
  opened.set_nonce(77);
  const v1::ConfirmRing confirm = ring.Opened(opened);
  EXPECT_EQ(confirm.ring_epoch(), 9u);
  EXPECT_EQ(confirm.nonce(), 77u);
  EXPECT_TRUE(ring.negotiating());
  EXPECT_FALSE(ring.Acquire().has_value());
  ring.Confirmed();
  EXPECT_TRUE(ring.open());
  EXPECT_EQ(ring.num_free(), 3u);
}

TEST(RingCreditsTest, ARefusalGoesOnWithTheNextTransport) {
  RingCredits ring;
  ring.Start(kShape, {v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE});
  const auto create = ring.Refused();
  ASSERT_TRUE(create.has_value());
  EXPECT_EQ(create->transport(), v1::RING_TRANSPORT_INLINE);
  EXPECT_FALSE(ring.Refused().has_value());
  EXPECT_FALSE(ring.open());
  EXPECT_FALSE(ring.negotiating());
}

TEST(RingCreditsTest, HandsOutEachEntryOnceAndGrowingSequences) {
  RingCredits ring;
  Negotiate(&ring, 1);
  std::set<uint32_t> entries;
  uint64_t sequence = 0;
  v1::RingReference last;
  for (int i = 0; i < 3; ++i) {
    const auto reference = ring.Acquire();
    ASSERT_TRUE(reference.has_value());
    EXPECT_EQ(reference->sequence(), ++sequence);
    entries.insert(reference->entry());
    last = *reference;
  }
  EXPECT_EQ(entries, (std::set<uint32_t>{0, 1, 2}));
  EXPECT_FALSE(ring.Acquire().has_value());
  ring.Release(last);
  const auto again = ring.Acquire();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->entry(), last.entry());
  EXPECT_EQ(again->sequence(), 4u);
}

TEST(RingCreditsTest, ReferencesOfAnEarlierRingAreWorthNothing) {
  RingCredits ring;
  Negotiate(&ring, 1);
  const v1::RingReference old = *ring.Acquire();
  ring.Close();
  ring.Release(old);
  EXPECT_EQ(ring.num_free(), 0u);
  Negotiate(&ring, 2);
  ring.Release(old);
  EXPECT_EQ(ring.num_free(), 3u);
}

}  // namespace
}  // namespace tandem
