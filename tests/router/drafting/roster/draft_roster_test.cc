#include "services/router/drafting/roster/draft_roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
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
  EXPECT_EQ(roster.ShareOf(2), 0.25);
  EXPECT_EQ(roster.ShareOf(0), 0.75);
  ASSERT_TRUE(roster.Promote().ok());
  EXPECT_EQ(roster.place(2).role, DraftRole::kServing);
  EXPECT_EQ(roster.place(0).role, DraftRole::kStandby);
  EXPECT_EQ(roster.place(1).role, DraftRole::kStandby);
  EXPECT_EQ(roster.canary_share(), 0);
  EXPECT_EQ(roster.ShareOf(2), 1);
  EXPECT_EQ(roster.ShareOf(0), 0);
  EXPECT_EQ(roster.ShareOf(3), 0);
  ASSERT_TRUE(roster.RollBack().ok());
  EXPECT_EQ(roster.place(2).role, DraftRole::kStandby);
  EXPECT_EQ(roster.place(0).role, DraftRole::kServing);
  EXPECT_EQ(roster.place(1).role, DraftRole::kServing);
  const DraftRoster rolled_back = roster;
  EXPECT_FALSE(roster.RollBack().ok()) << "a command that is repeated changes nothing";
  EXPECT_EQ(roster, rolled_back);
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

TEST(DraftRosterTest, RollBackTakesTheLastPromotionBack) {
  DraftRoster roster(1);
  ASSERT_TRUE(roster.Load("a", 0.5).ok());
  ASSERT_TRUE(roster.Promote().ok());
  ASSERT_TRUE(roster.Load("b", 0.5).ok());
  ASSERT_TRUE(roster.Promote().ok());
  ASSERT_TRUE(roster.RollBack().ok());
  EXPECT_EQ(roster.place(0).role, DraftRole::kStandby) << "it did not serve before the promotion";
  EXPECT_EQ(roster.place(1).role, DraftRole::kServing);
  EXPECT_EQ(roster.place(2).role, DraftRole::kStandby);
}

TEST(DraftRosterTest, NothingIsTakenBackIfTheFormerModelsAreGone) {
  DraftRoster roster(1);
  ASSERT_TRUE(roster.Load("a", 0.5).ok());
  ASSERT_TRUE(roster.Promote().ok());
  ASSERT_TRUE(roster.Unload(0).ok());
  EXPECT_THAT(Message(roster.RollBack()), HasSubstr("were unloaded"));
  // Another model that has the number did not serve before.
  ASSERT_EQ(*roster.Load("c", 0.5), 0U);
  EXPECT_FALSE(roster.RollBack().ok());
}

TEST(DraftRosterTest, NamesThatRequestsCouldNotUseAreRefused) {
  DraftRoster roster(1);
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string("."), std::string(".."),
        std::string("a\x1b[2J"), std::string("a\nb"), std::string(129, 'a')}) {
    EXPECT_THAT(Message(roster.Load(name, 0.5).status()), HasSubstr("of 1 to 128 bytes")) << name;
  }
  for (const std::string name : {"model", "suffix", "eagle", "none"}) {
    EXPECT_THAT(Message(roster.Load(name, 0.5).status()), HasSubstr("a kind of drafter")) << name;
  }
  EXPECT_TRUE(roster.Load(std::string(128, 'a'), 0.5).ok());
}

TEST(DraftRosterTest, TheCanaryHasItsShareOfAnyTraffic) {
  for (const double share : {0.1, 0.25, 0.5, 0.9, 1.0}) {
    DraftRoster roster(1);
    ASSERT_TRUE(roster.Load("a", share).ok());
    for (const uint64_t period : {1, 2, 3, 10}) {  // also of every second request, and so on
      constexpr int kRequests = 20000;
      int num_canary = 0;
      for (uint64_t i = 0; i < kRequests; ++i) {
        num_canary += roster.ArmOf(i * period) == DraftArm::kCanary ? 1 : 0;
      }
      const double deviation = std::sqrt(share * (1 - share) * kRequests);
      EXPECT_NEAR(num_canary, share * kRequests, 5 * deviation + 0.5) << share << ' ' << period;
    }
  }
  EXPECT_EQ(DraftRoster(1).ArmOf(0), DraftArm::kNone);
}

TEST(DraftRosterTest, TheArmSaysWhichModelsDraft) {
  for (const DraftArm arm : {DraftArm::kNone, DraftArm::kServing}) {
    for (const bool canary : {false, true}) {
      EXPECT_EQ(RoleFor(arm, {.canary = canary, .serving = true}), DraftRole::kServing);
      EXPECT_EQ(RoleFor(arm, {.canary = canary, .serving = false}), DraftRole::kStandby);
    }
  }
  EXPECT_EQ(RoleFor(DraftArm::kCanary, {.canary = true, .serving = true}), DraftRole::kCanary);
  EXPECT_EQ(RoleFor(DraftArm::kCanary, {.canary = true, .serving = false}), DraftRole::kCanary);
  // A canary that is gone leaves its requests to the others.
  EXPECT_EQ(RoleFor(DraftArm::kCanary, {.canary = false, .serving = true}), DraftRole::kServing);
  EXPECT_EQ(RoleFor(DraftArm::kCanary, {.canary = false, .serving = false}), DraftRole::kStandby);
}

}  // namespace
}  // namespace tandem
