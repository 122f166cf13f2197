#include "services/router/drafting/roster/draft_roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(DraftRosterTest, TheModelsOfTheBeginningServe) {
  const DraftRoster roster(2);
  EXPECT_EQ(roster.place(0).role, DraftRole::kServing);
  EXPECT_EQ(roster.place(1).role, DraftRole::kServing);
  EXPECT_FALSE(roster.has(2));
  EXPECT_EQ(roster.size(), 2U);
  EXPECT_EQ(roster.canary_share(), 0);
}

TEST(DraftRosterTest, ACanaryIsPromotedAndRolledBack) {
  DraftRoster roster(2);
  ASSERT_EQ(*roster.Load("new", 0.25), 2U);
  EXPECT_EQ(roster.canary(), 2U);
  EXPECT_EQ(roster.canary_share(), 0.25);
  ASSERT_TRUE(roster.Promote().ok());
  EXPECT_EQ(roster.place(2).role, DraftRole::kServing);
  EXPECT_EQ(roster.place(0).role, DraftRole::kStandby);
  EXPECT_EQ(roster.place(1).role, DraftRole::kStandby);
  EXPECT_EQ(roster.canary_share(), 0);
  ASSERT_TRUE(roster.RollBack().ok());
  EXPECT_EQ(roster.place(2).role, DraftRole::kStandby);
  EXPECT_EQ(roster.place(0).role, DraftRole::kServing);
  EXPECT_EQ(roster.place(1).role, DraftRole::kServing);
  ASSERT_TRUE(roster.RollBack().ok());
  EXPECT_EQ(roster.place(2).role, DraftRole::kServing);
}

TEST(DraftRosterTest, ANumberIsUsedAgain) {
  DraftRoster roster(1);
  ASSERT_EQ(*roster.Load("a", 1), 1U);
  ASSERT_TRUE(roster.Promote().ok());
  ASSERT_TRUE(roster.Unload(0).ok());
  ASSERT_EQ(*roster.Load("b", 1), 0U);
  EXPECT_EQ(roster.place(0).folder, "b");
  EXPECT_EQ(roster.place(0).role, DraftRole::kCanary);
}

TEST(DraftRosterTest, WhatIsNotAllowedChangesNothing) {
  DraftRoster roster(1);
  const DraftRoster before = roster;
  for (const double share : {0.0, -0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(Message(roster.Load("new", share).status()),
                HasSubstr("want a number above 0 and at most 1"));
  }
  EXPECT_EQ(roster.Load("", 0.5).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(roster.Promote().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(roster.RollBack().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(roster.Unload(0)), HasSubstr("no other draft model serves"));
  EXPECT_EQ(roster, before);
  EXPECT_THAT(Message(DraftRoster(0).Load("new", 0.5).status()), HasSubstr("no draft worker"));
}

TEST(DraftRosterTest, ThereIsOneCanaryAndFourModels) {
  DraftRoster roster(3);
  ASSERT_TRUE(roster.Load("a", 0.5).ok());
  EXPECT_EQ(roster.Load("a", 0.5).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(roster.Load("b", 0.5).status()), HasSubstr("there is a canary already"));
  ASSERT_TRUE(roster.Promote().ok());
  EXPECT_THAT(Message(roster.Load("b", 0.5).status()), HasSubstr("there are 4 draft models"));
}

TEST(DraftRosterTest, TheLastServingModelStays) {
  DraftRoster roster(2);
  ASSERT_TRUE(roster.Load("a", 0.5).ok());
  ASSERT_TRUE(roster.Unload(0).ok());
  EXPECT_FALSE(roster.Unload(1).ok());
  EXPECT_TRUE(roster.Unload(2).ok());
  EXPECT_FALSE(roster.canary().has_value());
}

TEST(DraftRosterTest, TheShareOfTheCanaryIsExactAndSpread) {
  for (const double share : {0.1, 0.25, 1.0 / 3, 0.5, 0.9, 1.0}) {
    DraftRoster roster(1);
    ASSERT_TRUE(roster.Load("a", share).ok());
    int num_canary = 0;
    for (uint32_t request = 0; request < 1000; ++request) {
      num_canary += roster.ArmOf(request) == DraftArm::kCanary ? 1 : 0;
      EXPECT_NEAR(num_canary, share * (request + 1), 1.0) << share << ' ' << request;
    }
  }
  EXPECT_EQ(DraftRoster(1).ArmOf(0), DraftArm::kNone);
}

TEST(DraftRosterTest, TheArmSaysWhichModelsDraft) {
  const auto serves = [](DraftRole role, DraftArm arm, bool is_ready) {
    return Serves(role, arm, is_ready);
  };
  for (const DraftArm arm : {DraftArm::kNone, DraftArm::kServing}) {
    EXPECT_TRUE(serves(DraftRole::kServing, arm, true));
    EXPECT_FALSE(serves(DraftRole::kCanary, arm, true));
    EXPECT_FALSE(serves(DraftRole::kStandby, arm, true));
  }
  EXPECT_TRUE(serves(DraftRole::kCanary, DraftArm::kCanary, true));
  EXPECT_FALSE(serves(DraftRole::kServing, DraftArm::kCanary, true));
  EXPECT_FALSE(serves(DraftRole::kStandby, DraftArm::kCanary, true));
  // A canary that is gone leaves its requests to the others.
  EXPECT_TRUE(serves(DraftRole::kServing, DraftArm::kCanary, false));
  EXPECT_FALSE(serves(DraftRole::kCanary, DraftArm::kCanary, false));
}

}  // namespace
}  // namespace tandem
