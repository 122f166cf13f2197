// Tests which draft blocks the workers accept.
#include "services/worker/session/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(WireTest, OnlyChainsAreJudged) {
  EXPECT_TRUE(CheckChain({}, 3).ok());
  EXPECT_TRUE(CheckChain(std::vector<int32_t>{-1, 0, 1}, 3).ok());
  for (const std::vector<int32_t>& parents : {std::vector<int32_t>{-1, 0},
                                              {-1, 0, 0},
                                              {-1, -1, 1},
                                              {0, 1, 2},
                                              {-1, 0, 5},
                                              {-1, 0, 1, 2}}) {
    const absl::Status status = CheckChain(parents, 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("parents"));
  }
}

}  // namespace
}  // namespace tandem
