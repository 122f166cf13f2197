#include "services/router/drafting/roster/heads_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(HeadsChoiceTest, ASwapIsTakenBackOnce) {
  HeadsChoice heads;
  EXPECT_EQ(heads.wanted(), std::nullopt);
  ASSERT_TRUE(heads.Swap("a").ok());
  EXPECT_EQ(heads.wanted(), "a");
  ASSERT_TRUE(heads.Swap("b").ok());
  ASSERT_TRUE(heads.RollBack().ok());
  EXPECT_EQ(heads.wanted(), "a");
  const HeadsChoice rolled_back = heads;
  EXPECT_THAT(std::string(heads.RollBack().message()), HasSubstr("no swap of heads to take back"));
  EXPECT_EQ(heads, rolled_back);
}

TEST(HeadsChoiceTest, TheFirstSwapIsTakenBackToTheHeadsOfTheBeginning) {
  HeadsChoice heads;
  EXPECT_FALSE(heads.RollBack().ok());
  ASSERT_TRUE(heads.Swap("none").ok());
  ASSERT_TRUE(heads.RollBack().ok());
  EXPECT_EQ(heads.wanted(), "");
}

TEST(HeadsChoiceTest, TheSameHeadsAgainAreAnotherTry) {
  HeadsChoice heads;
  ASSERT_TRUE(heads.Swap("a").ok());
  ASSERT_TRUE(heads.Swap("b").ok());
  const HeadsChoice before = heads;
  ASSERT_TRUE(heads.Swap("b").ok());
  EXPECT_FALSE(heads == before) << "the verifiers are asked again";
  ASSERT_TRUE(heads.RollBack().ok());
  EXPECT_EQ(heads.wanted(), "a");
}

TEST(HeadsChoiceTest, AWrongNameChangesNothing) {
  HeadsChoice heads;
  const HeadsChoice before = heads;
  for (const std::string& name : {std::string(), std::string("a/b"), std::string(".."),
                                  std::string("a\nb"), std::string(129, 'a')}) {
    EXPECT_THAT(std::string(heads.Swap(name).message()),
                HasSubstr("heads: want the name of a folder in --heads-folder, of 1 to 128 bytes"));
  }
  EXPECT_EQ(heads, before);
}

}  // namespace
}  // namespace tandem
