// Tests which drafts are allowed on the wire.
#include "proto/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr DraftLimits kLimits = {.max_depth = 3, .max_nodes = 5};

std::string Words(const absl::Status& status) { return std::string(status.message()); }

TEST(CheckDraftTest, AcceptsChainsAndTreesWithinTheLimits) {
  EXPECT_TRUE(CheckDraft({}, 3, kLimits).ok());
  for (const std::vector<int32_t>& parents : {std::vector<int32_t>{-1},
                                              {-1, 0, 1},
                                              {-1, -1, -1, -1, -1},
                                              {-1, 0, 0, 1, -1},
                                              {-1, 0, 1, 1, 1}}) {
    EXPECT_TRUE(CheckDraft(parents, parents.size(), kLimits).ok());
  }
}

TEST(CheckDraftTest, SaysWhatIsWrong) {
  const auto refused = [](const std::vector<int32_t>& parents, size_t num_tokens) {
    const absl::Status status = CheckDraft(parents, num_tokens, kLimits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Words(status);
  };
  EXPECT_EQ(refused({-1, 0}, 3), "parents: 2 for 3 draft tokens");
  EXPECT_EQ(refused({-1, 1, 0}, 3), "parents[1]: got 1, want an earlier draft token or -1");
  EXPECT_EQ(refused({-2}, 1), "parents[0]: got -2, want an earlier draft token or -1");
  EXPECT_EQ(refused({-1, 0, 5}, 3), "parents[2]: got 5, want an earlier draft token or -1");
  EXPECT_THAT(refused({}, 4), HasSubstr("4 of a chain, the session was attached with at most 3"));
  EXPECT_THAT(refused({-1, 0, 0, 0, 0, 0}, 6),
              HasSubstr("6 of a tree, the session was attached with at most 5"));
  EXPECT_THAT(refused({-1, 0, 1, 2}, 4),
              HasSubstr("a path of 4 draft tokens, the session was attached with at most 3"));
  EXPECT_THAT(Words(CheckDraft(std::vector<int32_t>{-1}, 1, {.max_depth = 3})),
              HasSubstr("1 of a tree, the session was attached with at most 0"));
}

TEST(DraftTreeTest, KnowsChains) {
  EXPECT_TRUE(IsChain({}));
  EXPECT_TRUE(IsChain(std::vector<int32_t>{-1, 0, 1}));
  EXPECT_FALSE(IsChain(std::vector<int32_t>{-1, -1}));
  EXPECT_FALSE(IsChain(std::vector<int32_t>{-1, 0, 0}));
}

TEST(DraftTreeTest, KnowsDepthsAndPaths) {
  const std::vector<int32_t> parents = {-1, 0, 0, 2, -1};
  EXPECT_EQ(DepthOfDraft(parents, 5), 3u);
  EXPECT_EQ(DepthOfDraft({}, 4), 4u);
  EXPECT_EQ(DepthOfDraft({}, 0), 0u);
  const auto is_path = [&](const std::vector<uint32_t>& path) {
    return IsPathOfDraft(parents, 5, path);
  };
  EXPECT_TRUE(is_path({}));
  EXPECT_TRUE(is_path({0, 2, 3}));
  EXPECT_TRUE(is_path({4}));
  EXPECT_FALSE(is_path({1})) << "does not begin at the beginning";
  EXPECT_FALSE(is_path({0, 3})) << "leaves a token out";
  EXPECT_FALSE(is_path({0, 1, 3})) << "is the child of another token";
  EXPECT_FALSE(is_path({0, 0}));
  EXPECT_FALSE(is_path({5}));
  EXPECT_TRUE(IsPathOfDraft({}, 2, std::vector<uint32_t>{0, 1}));
  EXPECT_FALSE(IsPathOfDraft({}, 2, std::vector<uint32_t>{1}));
}

}  // namespace
}  // namespace tandem
