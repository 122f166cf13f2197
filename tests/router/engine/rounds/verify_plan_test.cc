#include "services/router/engine/rounds/verify_plan.h"

#include <gtest/gtest.h>

#include <ostream>
#include <utility>
#include <vector>

#include "services/router/engine/rounds/round_state.h"
#include "tests/router/toy_slots.h"

namespace tandem::verify_plan_test {
namespace {

using testing::ToySlots;

// Plans as values that can be compared: slot, committed tokens, draft tokens.
struct Row {
  uint32_t slot;
  uint32_t num_tokens;
  uint32_t num_drafted;

  bool operator==(const Row&) const = default;
  friend void PrintTo(const Row& row, std::ostream* out) {
    *out << "slot " << row.slot << ": " << row.num_tokens << " + " << row.num_drafted;
  }
};
using Rows = std::vector<Row>;

Rows Read(const std::vector<VerifyPlan>& plans) {
  Rows rows;
  for (const VerifyPlan& plan : plans) {
    rows.push_back({plan.slot, plan.num_tokens, plan.num_drafted});
  }
  return rows;
}

EngineOptions WithStepRows(uint32_t step_rows) {
  EngineOptions options;
  options.step_rows = step_rows;
  return options;
}

Rows Plan(const ToySlots& toy, const EngineOptions& options,
          const std::vector<Proposal>& proposals = {}, uint32_t cohort = 0) {
  return Read(PlanVerify(options, toy.slots, cohort, proposals));
}

// ---------------------------------------------------------------- rows

TEST(PlanVerifyTest, AnEmptyPodHasNothingToSend) {
  const ToySlots toy(2);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), Rows());
}

TEST(PlanVerifyTest, EverySlotThatDecodesIsInTheBatchAndTheOldestComesFirst) {
  ToySlots toy(3);
  for (int i = 0; i < 3; ++i) toy.AddDecoding(9);
  toy.sequence(0).order = 30;
  toy.sequence(1).order = 10;
  toy.sequence(2).order = 20;
  EXPECT_EQ(Plan(toy, WithStepRows(1)), (Rows{{1, 1, 0}, {2, 1, 0}, {0, 1, 0}}));
}

TEST(PlanVerifyTest, ADraftIsJudgedInTheLifeThatItWasMadeFor) {
  ToySlots toy(3);
  for (int i = 0; i < 3; ++i) toy.AddDecoding(9);
  std::vector<Proposal> proposals = {toy.Draft(0, 4), toy.Draft(1, 3)};  // and none for slot 2
  ++proposals[1].serial;
  EXPECT_EQ(Plan(toy, WithStepRows(100), proposals), (Rows{{0, 1, 4}, {1, 1, 0}, {2, 1, 0}}));
}

TEST(PlanVerifyTest, ASlotThatLacksMoreThanThePendingTokenHasNoDraft) {
  ToySlots toy(1);
  toy.Add(9);
  toy.Hold(kVerifierPeer, 0, 7);
  EXPECT_EQ(Plan(toy, WithStepRows(100), {toy.Draft(0, 4)}), (Rows{{0, 2, 0}}));
}

TEST(PlanVerifyTest, EachCohortHasItsOwnBatch) {
  ToySlots toy(3);
  for (int i = 0; i < 3; ++i) toy.AddDecoding(ToySlots::Request(9), false, /*num_cohorts=*/2);
  EXPECT_EQ(Plan(toy, WithStepRows(100), {}, 0), (Rows{{0, 1, 0}, {2, 1, 0}}));
  EXPECT_EQ(Plan(toy, WithStepRows(100), {}, 1), (Rows{{1, 1, 0}}));
}

TEST(PlanVerifyTest, AReplayIsSentWhereNoClientRuns) {
  ToySlots toy(2);
  toy.AddDecoding(ToySlots::Request(9), /*is_replay=*/true);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 1, 0}}));
  toy.Add(9);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{1, 9, 0}}));
}

TEST(PlanVerifyTest, PromptsShareTheRowsOfABatch) {
  ToySlots toy(2);
  toy.Add(200);
  toy.Add(200);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 50, 0}, {1, 50, 0}}));
  EXPECT_EQ(Plan(toy, WithStepRows(500)), (Rows{{0, 200, 0}, {1, 200, 0}}));
}

TEST(PlanVerifyTest, AShortPromptLeavesItsShareToLaterOnes) {
  ToySlots toy(2);
  toy.Add(10);
  toy.Add(200);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 10, 0}, {1, 90, 0}}));
}

TEST(PlanVerifyTest, ManyPromptsDoNotCutEachOtherToTinyChunks) {
  ToySlots toy(5);
  for (int i = 0; i < 5; ++i) toy.Add(200);
  ASSERT_EQ(kMinChunkRows, 32u);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 32, 0}, {1, 32, 0}, {2, 32, 0}, {3, 4, 0}}))
      << "the youngest has no row in this batch";
}

TEST(PlanVerifyTest, RowsThatDecodeComeOffTheRowsOfPrompts) {
  ToySlots toy(2);
  toy.AddDecoding(9);
  toy.Add(200);
  EXPECT_EQ(Plan(toy, WithStepRows(60), {toy.Draft(0, 9)}), (Rows{{0, 1, 9}, {1, 50, 0}}));
}

TEST(PlanVerifyTest, PromptsGetAQuarterOfTheBatchAtLeast) {
  ToySlots toy(2);
  toy.AddDecoding(9);
  toy.Add(200);
  EXPECT_EQ(Plan(toy, WithStepRows(40), {toy.Draft(0, 35)}), (Rows{{0, 1, 35}, {1, 10, 0}}));
}

TEST(PlanVerifyTest, WhileOthersDecodeAPromptIsCutToWhatTheyCanWaitFor) {
  ToySlots toy(2);
  toy.AddDecoding(9);
  toy.Add(2000);
  EngineOptions options = WithStepRows(512);
  ASSERT_EQ(kFirstChunkRows, 64u);
  EXPECT_EQ(Plan(toy, options), (Rows{{0, 1, 0}, {1, 64, 0}})) << "the cost of a row is not known";
  toy.slots.verifier().row_seconds().Add(0.002);
  options.step_seconds = 0.25;
  EXPECT_EQ(Plan(toy, options), (Rows{{0, 1, 0}, {1, 125, 0}}));
  options.step_seconds = 0.01;
  EXPECT_EQ(Plan(toy, options), (Rows{{0, 1, 0}, {1, 32, 0}})) << "the smallest chunk";
  toy.slots.Vacate(0);
  EXPECT_EQ(Plan(toy, options), (Rows{{1, 512, 0}})) << "nobody waits";
}

TEST(PlanVerifyTest, SlotsOfTheOtherCohortWaitForPromptsToo) {
  ToySlots toy(2);
  toy.AddDecoding(ToySlots::Request(9), false, /*num_cohorts=*/2);
  toy.Add(ToySlots::Request(2000), false, /*num_cohorts=*/2);
  EXPECT_EQ(Plan(toy, WithStepRows(512), {}, 1), (Rows{{1, 64, 0}}));
}

TEST(PlanVerifyTest, AReplayThatWaitsDoesNotCutPrompts) {
  ToySlots toy(2);
  toy.AddDecoding(ToySlots::Request(9), /*is_replay=*/true);
  toy.Add(2000);
  EXPECT_EQ(Plan(toy, WithStepRows(512)), (Rows{{1, 512, 0}}));
}

TEST(PlanVerifyTest, AChunkEndsWhereAPageEnds) {
  for (const auto& [begin, chunk] : {std::pair{0u, 48u}, {4u, 48u}, {5u, 47u}, {6u, 50u}}) {
    ToySlots toy(1);
    toy.Attach(kVerifierPeer, 1000);
    toy.Add(200);
    toy.Hold(kVerifierPeer, 0, begin);
    EXPECT_EQ(Plan(toy, WithStepRows(50)), (Rows{{0, chunk, 0}})) << begin;
    toy.Attach(kVerifierPeer, 0);
    EXPECT_EQ(Plan(toy, WithStepRows(50)), (Rows{{0, 50, 0}})) << "there are no pages";
  }
}

TEST(PlanVerifyTest, TheEndOfAPromptAndAChunkWithinAPageAreNotCut) {
  ToySlots toy(1);
  toy.Attach(kVerifierPeer, 1000);
  toy.Add(30);
  EXPECT_EQ(Plan(toy, WithStepRows(50)), (Rows{{0, 30, 0}}));
  toy.Hold(kVerifierPeer, 0, 5);
  EXPECT_EQ(Plan(toy, WithStepRows(2)), (Rows{{0, 2, 0}}));
}

TEST(PlanVerifyTest, ABatchHasOneSuspectAtMost) {
  ToySlots toy(4);
  for (int i = 0; i < 4; ++i) toy.AddDecoding(9);
  for (const uint32_t id : {1, 3}) toy.sequence(id).faults.VerifierLost(0, 5, 5);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}));
  toy.sequence(1).faults.VerifierHolds(100);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}, {3, 1, 0}}));
}

TEST(PlanVerifyTest, BesideASuspectThereIsNoPromptThatNoVerifierHasComputed) {
  ToySlots toy(3);
  toy.Add(20);
  toy.AddDecoding(9);
  toy.Add(20);
  toy.sequence(0).faults.VerifierLost(0, 5, 5);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 20, 0}, {1, 1, 0}}));
  toy.sequence(0).faults.VerifierHolds(20);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 20, 0}, {1, 1, 0}, {2, 20, 0}}));
}

TEST(PlanVerifyTest, TheOldestOfSuspectsAndNewPromptsDecidesSoThatNeitherStarves) {
  ToySlots toy(4);
  toy.AddDecoding(9);
  toy.Add(20);
  toy.Add(20);
  toy.Add(20);
  toy.sequence(2).faults.VerifierLost(0, 5, 5);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 1, 0}, {1, 20, 0}, {3, 20, 0}}));
  toy.sequence(1).furthest_len = 20;  // the suspect is the oldest of the others now
  toy.Hold(kVerifierPeer, 1, 19);
  EXPECT_EQ(Plan(toy, WithStepRows(100)), (Rows{{0, 1, 0}, {1, 1, 0}, {2, 20, 0}}));
}

// ---------------------------------------------------------------- pages

// A pod with four slots, whose verifier has this number of free pages. A page has four rows.
struct SlotsWithPages : ToySlots {
  explicit SlotsWithPages(uint32_t num_free) : ToySlots(4) { LimitPages(kVerifierPeer, num_free); }
};

TEST(ReservePagesTest, ASuspectThatFindsNoPageGivesItsSlotUp) {
  for (const bool is_suspect : {false, true}) {
    SlotsWithPages toy(1);
    toy.AddDecoding(9);  // eight rows: the next one needs a page
    toy.Add(12);
    if (is_suspect) toy.sequence(1).faults.VerifierLost(0, 5, 5);
    const ReservedPlan reserved = ReservePages({{0, 1, 0}, {1, 12, 0}}, &toy.slots);
    EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 0}}));
    EXPECT_EQ(reserved.preempted.size(), is_suspect ? 1u : 0u);
    EXPECT_EQ(toy.slots[1].sequence == nullptr, is_suspect);
  }
}

TEST(ReservePagesTest, WithoutALimitEverythingIsSent) {
  ToySlots toy(2);
  toy.AddDecoding(9);
  toy.Add(500);
  toy.slots[0].fallback = Fallback::kGivenUp;
  const ReservedPlan reserved = ReservePages({{0, 1, 4}, {1, 500, 0}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 4}, {1, 500, 0}}));
  EXPECT_TRUE(reserved.preempted.empty());
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kGivenUp);
}

TEST(ReservePagesTest, WhatFitsIsSentAsPlanned) {
  SlotsWithPages toy(4);
  toy.AddDecoding(9);  // eight rows: the next one needs a page
  toy.Add(12);
  const ReservedPlan reserved = ReservePages({{0, 1, 3}, {1, 12, 0}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 3}, {1, 12, 0}}));
  EXPECT_TRUE(reserved.preempted.empty());
}

TEST(ReservePagesTest, ADraftIsDroppedBeforeAnybodyGivesASlotUp) {
  SlotsWithPages toy(1);
  toy.AddDecoding(9);
  toy.AddDecoding(7);
  for (const uint32_t id : {0, 1}) toy.slots[id].fallback = Fallback::kDraftFailed;
  const ReservedPlan reserved = ReservePages({{0, 1, 4}, {1, 1, 1}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 0}, {1, 1, 1}}));
  EXPECT_TRUE(reserved.preempted.empty());
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kNoPages);
  EXPECT_EQ(toy.slots[1].fallback, Fallback::kDraftFailed) << "its draft fits into its own page";
}

TEST(ReservePagesTest, TheYoungestGivesItsSlotUpAndIsReturned) {
  SlotsWithPages toy(0);
  toy.AddDecoding(9);
  toy.AddDecoding(7);
  toy.AddDecoding(7);
  const Sequence* youngest = &toy.sequence(2);
  const ReservedPlan reserved = ReservePages({{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 0}, {1, 1, 0}}));
  ASSERT_EQ(reserved.preempted.size(), 1u);
  EXPECT_EQ(reserved.preempted[0].get(), youngest);
  ASSERT_TRUE(youngest->last_slot.has_value());
  EXPECT_EQ(youngest->last_slot->slot, 2u);
  EXPECT_EQ(toy.slots[2].sequence, nullptr);
  EXPECT_EQ(toy.slots.verifier().pages().num_free(), 2) << "two pages come back with its close";
}

TEST(ReservePagesTest, OneAfterTheOtherGivesItsSlotUpUntilTheOldestFits) {
  SlotsWithPages toy(0);
  toy.Add(16);
  toy.AddDecoding(7);
  toy.AddDecoding(7);
  toy.Add(9);  // the youngest holds nothing, so it has nothing to give
  const ReservedPlan reserved = ReservePages({{0, 16, 0}, {1, 1, 0}, {2, 1, 0}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 16, 0}}));
  ASSERT_EQ(reserved.preempted.size(), 2u);
  EXPECT_EQ(reserved.preempted[0]->last_slot->slot, 2u) << "the youngest first";
  EXPECT_EQ(reserved.preempted[1]->last_slot->slot, 1u);
  EXPECT_NE(toy.slots[3].sequence, nullptr);
}

TEST(ReservePagesTest, AnOlderRequestNeverGivesWayToAYoungerOne) {
  SlotsWithPages toy(0);
  toy.AddDecoding(7);  // has room in its second page
  toy.AddDecoding(9);
  const ReservedPlan reserved = ReservePages({{0, 1, 0}, {1, 1, 0}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 0}})) << "the younger one waits in its slot";
  EXPECT_TRUE(reserved.preempted.empty());
  EXPECT_NE(toy.slots[1].sequence, nullptr);
}

TEST(ReservePagesTest, PagesOfOlderPlansAreTaken) {
  SlotsWithPages toy(3);
  for (int i = 0; i < 3; ++i) toy.Add(8);
  const ReservedPlan reserved = ReservePages({{0, 8, 0}, {1, 8, 0}, {2, 4, 0}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 8, 0}, {2, 4, 0}}))
      << "what is left is enough for the third, not for the second";
  EXPECT_TRUE(reserved.preempted.empty());
}

TEST(ReservePagesTest, TheOldestIsSentInAnyCase) {
  SlotsWithPages toy(0);
  toy.AddDecoding(9);
  const ReservedPlan reserved = ReservePages({{0, 1, 4}}, &toy.slots);
  EXPECT_EQ(Read(reserved.plans), (Rows{{0, 1, 0}})) << "the worker knows better what is free";
  EXPECT_TRUE(reserved.preempted.empty());
}

}  // namespace
}  // namespace tandem::verify_plan_test
