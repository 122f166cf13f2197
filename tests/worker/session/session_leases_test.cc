#include "services/worker/session/session_leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace tandem {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SessionLeases::Clock::time_point kStart{seconds(1000)};

TEST(SessionLeasesTest, OnlyASessionThatWasPingedHasALease) {
  SessionLeases leases(5);
  EXPECT_FALSE(leases.NextLook(kStart).has_value());
  leases.Open(7);
  leases.Open(8);
  EXPECT_EQ(leases.NextLook(kStart), kStart + seconds(5));
  leases.Renew(7, kStart);
  leases.Renew(9, kStart);  // no session has this token
  EXPECT_THAT(leases.TakeExpired(kStart + seconds(4)), IsEmpty());
  EXPECT_THAT(leases.TakeExpired(kStart + seconds(5)), ElementsAre(7));
  EXPECT_THAT(leases.TakeExpired(kStart + seconds(1000)), IsEmpty());
}

TEST(SessionLeasesTest, EveryPingRenews) {
  SessionLeases leases(5);
  leases.Open(7);
  for (int i = 0; i < 10; ++i) {
    leases.Renew(7, kStart + seconds(4 * i));
    EXPECT_THAT(leases.TakeExpired(kStart + seconds(4 * i + 4)), IsEmpty());
  }
  EXPECT_EQ(leases.NextLook(kStart + seconds(37)), kStart + seconds(41));
}

TEST(SessionLeasesTest, AClosedSessionHasNoLease) {
  SessionLeases leases(5);
  leases.Open(7);
  leases.Open(0);  // names no session
  leases.Renew(7, kStart);
  leases.Close(7);
  leases.Close(0);
  EXPECT_THAT(leases.TakeExpired(kStart + seconds(6)), IsEmpty());
  EXPECT_FALSE(leases.NextLook(kStart).has_value());
}

}  // namespace
}  // namespace tandem
