// Tests how texts that may follow are merged into a tree.
#include "common/continuation_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ContinuationTreeTest, TheHeaviestTokenComesNext) {
  const std::vector<Continuation> texts = {{{1, 2, 3}}, {{1, 4, 5}}, {{1, 4, 6}}, {{7, 8}}};
  const ContinuationTree tree = MergeContinuations(texts, {.max_depth = 3, .max_nodes = 20});
  //  1 (three texts), 4 (two), and then those of one text in the order in which they were found
  EXPECT_THAT(tree.token_ids, ElementsAre(1, 4, 7, 2, 5, 6, 8, 3));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, -1, 0, 1, 1, 2, 3));
}

TEST(ContinuationTreeTest, LimitsHold) {
  const std::vector<Continuation> texts = {{{1, 2, 3}}, {{1, 4, 5}}, {{1, 4, 6}}, {{7, 8}}};
  EXPECT_THAT(MergeContinuations(texts, {.max_depth = 3, .max_nodes = 3}).token_ids,
              ElementsAre(1, 4, 7));
  EXPECT_THAT(MergeContinuations(texts, {.max_depth = 1, .max_nodes = 9}).token_ids,
              ElementsAre(1, 7));
  EXPECT_THAT(
      MergeContinuations(texts, {.max_depth = 3, .max_nodes = 9, .least_share = 0.5}).token_ids,
      ElementsAre(1, 4));
  // Without nodes, the heaviest chain.
  const ContinuationTree chain = MergeContinuations(texts, {.max_depth = 3});
  EXPECT_THAT(chain.token_ids, ElementsAre(1, 4, 5));
  EXPECT_THAT(chain.parents, ElementsAre(-1, 0, 1));
}

TEST(ContinuationTreeTest, WeightsCountAndEndsEnd) {
  const std::vector<Continuation> texts = {
      {{1, 2}, 2}, {{3, 4}, 5}, {{-1, 6}, 9}, {{90, 6}, 9}, {{}, 9}};
  const ContinuationTree tree =
      MergeContinuations(texts, {.max_depth = 3, .max_nodes = 9, .end_id = 90});
  EXPECT_THAT(tree.token_ids, ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(MergeContinuations({}, {.max_depth = 3, .max_nodes = 9}).token_ids, IsEmpty());
}

}  // namespace
}  // namespace tandem
