#include "common/rpc/heartbeat.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using State = Heartbeat::State;

// Checks every half second until `until`. Each ping gets the same answer.
class Pinger {
 public:
  Pinger() { heartbeat_.Begin(now_); }
  State Until(double until, bool answers, bool computing = false, uint64_t steps = 0) {
    State state = State::kAlive;
    while (now_ < until && state == State::kAlive) {
      now_ += kPingSeconds;
      progress_ += steps;
      if (answers) heartbeat_.OnPong(progress_, computing, now_);
      state = heartbeat_.Check(3, 6, now_);
    }
    return state;
  }
  double now() const { return now_; }
  void Sleep(double seconds) { now_ += seconds; }

 private:
  Heartbeat heartbeat_;
  double now_ = 100;
  uint64_t progress_ = 0;
};

TEST(HeartbeatTest, AWorkerThatIsSilentForTheLimitIsHung) {
  Pinger pinger;
  EXPECT_EQ(pinger.Until(110, true), State::kAlive);
  EXPECT_EQ(pinger.Until(120, false), State::kSilent);
  EXPECT_EQ(pinger.now(), 113);
}

TEST(HeartbeatTest, AWorkerThatNeverAnsweredIsSilentToo) {
  Pinger pinger;
  EXPECT_EQ(pinger.Until(120, false), State::kSilent);
  EXPECT_EQ(pinger.now(), 103);
}

TEST(HeartbeatTest, AWorkerThatComputesForLongIsBusyWhileItProgresses) {
  Pinger pinger;
  EXPECT_EQ(pinger.Until(1000, true, true, 1), State::kAlive);
  EXPECT_EQ(pinger.Until(2000, true, true, 0), State::kStuck);
  EXPECT_EQ(pinger.now(), 1006);
}

TEST(HeartbeatTest, AnIdleWorkerNeedNotProgress) {
  Pinger pinger;
  EXPECT_EQ(pinger.Until(1000, true, false, 0), State::kAlive);
}

TEST(HeartbeatTest, TimeInWhichNobodyLookedDoesNotCount) {
  Pinger pinger;
  pinger.Sleep(3600);
  EXPECT_EQ(pinger.Until(3701, false), State::kAlive);
  EXPECT_EQ(pinger.Until(3710, false), State::kSilent);
}

}  // namespace
}  // namespace tandem
