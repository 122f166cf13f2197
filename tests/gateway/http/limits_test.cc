// The limits on what clients of the gateway may take, without sockets.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/limits/body_pace.h"
#include "services/gateway/limits/byte_budget.h"
#include "services/gateway/limits/http_limits.h"
#include "services/gateway/limits/lane.h"

namespace tandem::gateway {
namespace {

TEST(ByteLeaseTest, OnlyWhatGoesBeyondTheShareIsTakenFromTheBudget) {
  ByteBudget budget(100);
  ByteLease one(&budget, 50);
  EXPECT_TRUE(one.Take(50));
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_TRUE(one.Take(100));
  EXPECT_EQ(budget.used(), 100u);
  EXPECT_FALSE(one.Take(1));
  EXPECT_EQ(one.bytes(), 150u);
  ByteLease two(&budget, 50);
  EXPECT_TRUE(two.Take(40));
  EXPECT_FALSE(two.Take(11)) << "one byte more than its share";
  EXPECT_EQ(two.bytes(), 40u);
  ByteLease moved = std::move(one);
  EXPECT_EQ(budget.used(), 100u);
  moved.GiveBack();
  EXPECT_EQ(budget.used(), 0u);
  {
    ByteLease three(&budget, 0);
    EXPECT_TRUE(three.Take(70));
    two = std::move(three);
    EXPECT_EQ(budget.used(), 70u);
  }
  two = ByteLease();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(ByteLeaseTest, ALeaseWithoutABudgetRefusesNothing) {
  ByteLease lease;
  EXPECT_TRUE(lease.Take(1 << 30));
  EXPECT_EQ(lease.bytes(), 1u << 30);
}

constexpr HttpLimits kPaceLimits{
    .share_bytes = 100, .request_seconds = 10, .body_rate = 10, .body_window_seconds = 2};

TEST(BodyPaceTest, ASmallBodyMayTakeItsTime) {
  BodyPace pace(kPaceLimits);
  EXPECT_EQ(pace.Begin(1000), 2);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(pace.Look(1000 + 2 * i, 100), 2);
  EXPECT_EQ(pace.Look(1009.5, 100), 0.5);
  EXPECT_EQ(pace.Look(1010, 100), std::nullopt);
}

TEST(BodyPaceTest, ALargeBodyMustGrowInEveryWindow) {
  BodyPace pace(kPaceLimits);
  pace.Begin(1000);
  EXPECT_EQ(pace.Look(1002, 1000), 2);
  EXPECT_EQ(pace.Look(1004, 1020), 2);
  EXPECT_EQ(pace.Look(1006, 1039), std::nullopt) << "one byte too few";
  pace.Begin(2000);
  EXPECT_EQ(pace.Look(2002, 1000), 2) << "it begins anew";
}

TEST(LaneTest, OneAfterTheOtherInTheirOrder) {
  Lane lane;
  std::vector<std::string> begun;
  for (const char* name : {"one", "two", "three"}) lane.Enter([&, name] { begun.push_back(name); });
  EXPECT_EQ(begun, (std::vector<std::string>{"one"}));
  lane.Leave();
  EXPECT_EQ(begun, (std::vector<std::string>{"one", "two"}));
  lane.Leave();
  lane.Leave();
  lane.Enter([&] { begun.push_back("four"); });
  EXPECT_EQ(begun, (std::vector<std::string>{"one", "two", "three", "four"}));
}

}  // namespace
}  // namespace tandem::gateway
