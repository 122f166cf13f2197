#include "services/router/drafting/draft_length.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(DraftLengthTest, IsTheWantedLengthIfThereIsRoom) {
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 1000, 1000}), 4u);
  EXPECT_EQ(LimitDraftLength({0, 10, 100, 1000, 1000}), 0u);
}

TEST(DraftLengthTest, ARoundCommitsNoMoreThanMayBeEmitted) {
  EXPECT_EQ(LimitDraftLength({4, 10, 3, 1000, 1000}), 2u);
  EXPECT_EQ(LimitDraftLength({4, 10, 1, 1000, 1000}), 0u);
}

TEST(DraftLengthTest, KeepsCommittedPlusKPlusOneInTheTargetsContext) {
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 15, 1000}), 4u);
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 14, 1000}), 3u);
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 11, 1000}), 0u);
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 10, 1000}), 0u);
}

TEST(DraftLengthTest, StopsPastTheDraftsContext) {
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 1000, 12}), 2u);
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 1000, 10}), 0u);
  EXPECT_EQ(LimitDraftLength({4, 10, 100, 1000, 5}), 0u);
}

}  // namespace
}  // namespace tandem
