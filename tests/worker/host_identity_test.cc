#include "services/worker/host_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(HostIdentityTest, IsTheSameAtEachCall) {
  EXPECT_FALSE(BootId().empty());
  EXPECT_EQ(BootId(), BootId());
  EXPECT_THAT(PidNamespace(), ::testing::HasSubstr("pid:"));
}

}  // namespace
}  // namespace tandem
