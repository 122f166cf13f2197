#include "services/router/drafting/roster/heads_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(HeadsChoiceTest, SwapsAreTakenBackOneAfterTheOther) {
  HeadsChoice heads;
  EXPECT_EQ(heads.wanted(), std::nullopt);
  ASSERT_TRUE(heads.Swap("a", "there").ok());
  EXPECT_EQ(heads.wanted(), "a");
  ASSERT_TRUE(heads.Swap("b", "a").ok());
  ASSERT_TRUE(heads.RollBack().ok());
  EXPECT_EQ(heads.wanted(), "a");
  ASSERT_TRUE(heads.RollBack().ok());
  EXPECT_EQ(heads.wanted(), "there") << "what the verifiers had before the first swap";
  const HeadsChoice rolled_back = heads;
  EXPECT_THAT(std::string(heads.RollBack().message()), HasSubstr("no swap of heads to take back"));
  EXPECT_EQ(heads, rolled_back);
}

TEST(HeadsChoiceTest, AFailedSwapLeavesTheWayBack) {
  HeadsChoice heads;
  ASSERT_TRUE(heads.Swap("a", "").ok());
  ASSERT_TRUE(heads.Swap("b", "a").ok());
  ASSERT_TRUE(heads.Swap("typo", "b").ok());
  ASSERT_TRUE(heads.RollBack("typo").ok());
  EXPECT_EQ(heads.wanted(), "b");
  ASSERT_TRUE(heads.RollBack().ok());
  EXPECT_EQ(heads.wanted(), "a");
}

TEST(HeadsChoiceTest, OnlyTheSwapThatIsMeantIsTakenBack) {
  HeadsChoice heads;
  ASSERT_TRUE(heads.Swap("a", "").ok());
  ASSERT_TRUE(heads.Swap("b", "a").ok());
  EXPECT_THAT(std::string(heads.RollBack("a").message()), HasSubstr("b were asked for after a"));
  EXPECT_EQ(heads.wanted(), "b");
}

TEST(HeadsChoiceTest, TheSameHeadsAgainAreAnotherTry) {
  HeadsChoice heads;
  ASSERT_TRUE(heads.Swap("a", "").ok());
  const HeadsChoice before = heads;
  ASSERT_TRUE(heads.Swap("a", "a").ok());
  EXPECT_FALSE(heads == before) << "the verifiers are asked again";
  ASSERT_TRUE(heads.RollBack("a").ok());
  EXPECT_EQ(heads.wanted(), "a") << "giving up a swap that changed nothing changes nothing";
}

TEST(HeadsChoiceTest, TheWayBackIsBounded) {
  HeadsChoice heads;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(heads.Swap("a" + std::to_string(i), "").ok());
  int num_back = 0;
  while (heads.RollBack().ok()) ++num_back;
  EXPECT_EQ(num_back, 16);
}

TEST(HeadsChoiceTest, AWrongNameChangesNothing) {
  HeadsChoice heads;
  const HeadsChoice before = heads;
  for (const std::string& name : {std::string(), std::string("a/b"), std::string(".."),
                                  std::string("a\nb"), std::string(129, 'a')}) {
    EXPECT_THAT(std::string(heads.Swap(name, "").message()),
                HasSubstr("heads: want the name of a folder in --heads-folder, of 1 to 128 bytes"));
  }
  EXPECT_EQ(heads, before);
}

}  // namespace
}  // namespace tandem
