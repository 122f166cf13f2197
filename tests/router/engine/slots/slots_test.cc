#include "services/router/engine/slots/slots.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "tests/router/toy_slots.h"

namespace tandem::slots_test {
namespace {

using testing::ToySlots;

TEST(SlotsTest, ASlotIsTakenAndGivenBack) {
  ToySlots toy(3);
  Slots& slots = toy.slots;
  EXPECT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots.FreeSlot(), 0u);
  std::unique_ptr<Sequence> made = toy.Make(ToySlots::Request(5));
  const Sequence* sequence = made.get();
  slots.Occupy(1, std::move(made), 1);
  EXPECT_EQ(slots[1].sequence.get(), sequence);
  EXPECT_EQ(slots.FreeSlot(), 0u);
  EXPECT_EQ(slots.num_taken(), 1u);
  const uint32_t epoch = slots.verifier().slot(1).epoch;

  const std::unique_ptr<Sequence> left = slots.Vacate(1);
  EXPECT_EQ(left.get(), sequence);
  ASSERT_TRUE(left->last_slot.has_value());
  EXPECT_EQ(left->last_slot->slot, 1u);
  EXPECT_EQ(left->last_slot->epoch, epoch);
  EXPECT_EQ(slots.num_taken(), 0u);
  EXPECT_EQ(slots[1].sequence, nullptr);
}

TEST(SlotsTest, TheLowestFreeSlotIsTakenFirst) {
  ToySlots toy(3);
  for (uint32_t id = 0; id < 3; ++id) EXPECT_EQ(toy.Add(5), id);
  EXPECT_EQ(toy.slots.FreeSlot(), std::nullopt);
  toy.slots.Vacate(1);
  EXPECT_EQ(toy.slots.FreeSlot(), 1u);
  toy.slots.Vacate(0);
  EXPECT_EQ(toy.slots.FreeSlot(), 0u);
}

TEST(SlotsTest, AnAnswerToAFormerLifeFindsNothing) {
  ToySlots toy(2);
  const uint32_t id = toy.Add(5);
  const uint64_t serial = toy.sequence(id).serial;
  EXPECT_EQ(toy.slots.Find(id, serial), &toy.sequence(id));
  EXPECT_EQ(toy.slots.Find(1, serial), nullptr) << "another slot";
  EXPECT_EQ(toy.slots.Find(1, 0), nullptr) << "a free slot";
  std::unique_ptr<Sequence> sequence = toy.slots.Vacate(id);
  EXPECT_EQ(toy.slots.Find(id, serial), nullptr);
  toy.slots.Occupy(id, std::move(sequence), 1);
  EXPECT_EQ(toy.slots.Find(id, serial), nullptr) << "the same sequence has another life";
  EXPECT_NE(toy.slots.Find(id, toy.sequence(id).serial), nullptr);
}

TEST(SlotsTest, EachLifeHasItsOwnEpochAtBothWorkers) {
  ToySlots toy(1);
  for (int life = 1; life <= 2; ++life) {
    toy.Add(5);
    for (PeerId peer = 0; peer < 2; ++peer) {
      EXPECT_EQ(toy.slots.peer(peer).slot(0).epoch, life);
      EXPECT_EQ(toy.slots.peer(peer).slot(0).cached_len, 0u);
      toy.Hold(peer, 0, 3);
    }
    toy.slots.Vacate(0);
  }
}

TEST(SlotsTest, ASlotIsClosedWhereItWasOpen) {
  ToySlots toy(1);
  toy.Attach(kVerifierPeer, 10);
  toy.slots.verifier().pages().Reported(8);
  toy.Add(5);
  toy.Hold(kVerifierPeer, 0, 4, 1);
  toy.slots.Vacate(0);
  EXPECT_EQ(toy.slots.verifier().pages().num_free(), 10) << "the pages of five rows";
  EXPECT_EQ(toy.slots.verifier().num_open_slots(), 1u) << "the close is not sent yet";
  v1::UpdateSlots update;
  toy.slots.verifier().TakeCloses(&update);
  ASSERT_EQ(update.closes_size(), 1);
  EXPECT_EQ(update.closes(0).slot(), 0u);
  EXPECT_EQ(update.closes(0).slot_epoch(), 1u);
  EXPECT_EQ(toy.slots.verifier().num_open_slots(), 0u);
  v1::UpdateSlots to_drafter;
  toy.slots.peer(kDrafterPeer).TakeCloses(&to_drafter);
  EXPECT_EQ(to_drafter.closes_size(), 0) << "the drafter never heard of it";
}

TEST(SlotsTest, ClientsAndReplaysAreCountedApart) {
  ToySlots toy(4);
  toy.Add(5);
  EXPECT_EQ(toy.slots.SlotOfReplay(), std::nullopt);
  const uint32_t replay = toy.Add(ToySlots::Request(5), /*is_replay=*/true);
  toy.Add(5);
  EXPECT_EQ(toy.slots.num_running(), 2u);
  EXPECT_EQ(toy.slots.num_taken(), 3u);
  EXPECT_EQ(toy.slots.SlotOfReplay(), replay);
}

TEST(SlotsTest, ACallIsFoundUnlessItIsReplayed) {
  ToySlots toy(4);
  const uint32_t first = toy.Add(5);
  const uint32_t replay = toy.Add(ToySlots::Request(5), /*is_replay=*/true);
  const uint32_t last = toy.Add(5);
  EXPECT_EQ(toy.slots.SlotOf(toy.sequence(first).call), first);
  EXPECT_EQ(toy.slots.SlotOf(toy.sequence(last).call), last);
  EXPECT_EQ(toy.slots.SlotOf(toy.sequence(replay).call), std::nullopt);
  EXPECT_EQ(toy.slots.SlotOf(1000), std::nullopt);
}

TEST(SlotsTest, AReplayWaitsWhileClientsRun) {
  ToySlots toy(2);
  const uint32_t replay = toy.Add(ToySlots::Request(5), /*is_replay=*/true);
  EXPECT_FALSE(toy.slots.IsWaiting(replay));
  const uint32_t client = toy.Add(5);
  EXPECT_TRUE(toy.slots.IsWaiting(replay));
  EXPECT_FALSE(toy.slots.IsWaiting(client));
  toy.slots.Vacate(client);
  EXPECT_FALSE(toy.slots.IsWaiting(replay));
}

TEST(SlotsTest, AWorkerLacksTheTokensThatItHasNoRowsOf) {
  ToySlots toy(1);
  toy.Add(9);
  EXPECT_EQ(toy.slots.Lack(kVerifierPeer, 0), 9u);
  toy.Hold(kVerifierPeer, 0, 8);
  toy.Hold(kDrafterPeer, 0, 5, 2);
  EXPECT_EQ(toy.slots.Lack(kVerifierPeer, 0), 1u);
  EXPECT_EQ(toy.slots.Lack(kDrafterPeer, 0), 4u) << "rows of draft tokens do not count";
}

TEST(SlotsTest, RunningRequestsSpeakForThePagesThatTheyStillLack) {
  ToySlots toy(4);
  EXPECT_EQ(toy.slots.PagesSpokenFor(), 0);
  toy.Add(7);
  EXPECT_EQ(toy.slots.PagesSpokenFor(), 0) << "pages do not limit";
  toy.Attach(kVerifierPeer, 20);
  EXPECT_EQ(toy.slots.PagesSpokenFor(), 2) << "seven tokens and one more";
  toy.Add(8);
  EXPECT_EQ(toy.slots.PagesSpokenFor(), 5) << "three more for eight tokens and one more";
  toy.Hold(kVerifierPeer, 1, 5);
  EXPECT_EQ(toy.slots.PagesSpokenFor(), 3) << "five rows have two pages";
  toy.Add(ToySlots::Request(30), /*is_replay=*/true);
  EXPECT_EQ(toy.slots.PagesSpokenFor(), 3) << "a replay gives way";
}

TEST(SlotsTest, ASequenceNeedsAPageBeyondThoseOfItsTokens) {
  ToySlots toy(4);
  toy.Add(7);
  const std::unique_ptr<Sequence> sequence = toy.Make(ToySlots::Request(8));
  EXPECT_TRUE(toy.slots.HasPagesFor(*sequence)) << "pages do not limit";
  toy.Attach(kVerifierPeer, 20);
  // Two pages are spoken for. Nine rows need three pages, and one to grow.
  toy.slots.verifier().pages().Reported(6);
  EXPECT_TRUE(toy.slots.HasPagesFor(*sequence));
  toy.slots.verifier().pages().Reported(5);
  EXPECT_FALSE(toy.slots.HasPagesFor(*sequence));
}

TEST(SlotsTest, TheYoungestThatHoldsRowsGivesItsPagesUp) {
  ToySlots toy(5);
  for (int i = 0; i < 4; ++i) toy.Add(9);
  toy.sequence(0).order = 10;
  toy.sequence(1).order = 40;
  toy.sequence(2).order = 30;
  toy.sequence(3).order = 20;
  for (const uint32_t id : {0, 1, 2}) toy.Hold(kVerifierPeer, id, 4);
  EXPECT_EQ(toy.slots.YoungestAfter(toy.sequence(0)), 1u);
  EXPECT_EQ(toy.slots.YoungestAfter(toy.sequence(3)), 1u);
  EXPECT_EQ(toy.slots.YoungestAfter(toy.sequence(1)), std::nullopt) << "it is the youngest itself";
  toy.slots.Vacate(1);
  EXPECT_EQ(toy.slots.YoungestAfter(toy.sequence(0)), 2u);
  EXPECT_EQ(toy.slots.YoungestAfter(toy.sequence(2)), std::nullopt);
  toy.slots.Vacate(2);
  EXPECT_EQ(toy.slots.YoungestAfter(toy.sequence(0)), std::nullopt) << "slot 3 holds nothing";
}

TEST(SlotsTest, CohortsStayBalanced) {
  ToySlots toy(6);
  const auto add = [&] {
    return toy.slots[toy.Add(ToySlots::Request(5), false, /*num_cohorts=*/2)].cohort;
  };
  EXPECT_EQ(add(), 0u);
  EXPECT_EQ(add(), 1u);
  EXPECT_EQ(add(), 0u);
  EXPECT_EQ(add(), 1u);
  toy.slots.Vacate(1);
  toy.slots.Vacate(3);
  EXPECT_EQ(add(), 1u);
  EXPECT_EQ(add(), 1u);
  EXPECT_EQ(add(), 0u);
  ToySlots single(3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(single.slots[single.Add(5)].cohort, 0u);
}

}  // namespace
}  // namespace tandem::slots_test
