#include "services/router/drafting/costs/interruptions.h"

#include <gtest/gtest.h>

namespace tandem::interruptions_test {
namespace {

// Every tenth batch of the kind is interrupted for ten times `mean` seconds.
void ObserveMany(Interruptions& interruptions, BatchKind kind, int batches, double mean) {
  for (int i = 0; i < batches; ++i) interruptions.Observe(kind, i % 10 == 9 ? 10 * mean : 0);
}

TEST(InterruptionsTest, NothingIsExpectedBeforeTheFirst) {
  const Interruptions interruptions;
  EXPECT_EQ(interruptions.Seconds(BatchKind::kPropose), 0);
  EXPECT_EQ(interruptions.Seconds(BatchKind::kVerify), 0);
}

TEST(InterruptionsTest, AKindWithoutBatchesIsInterruptedLikeTheOther) {
  Interruptions interruptions;
  ObserveMany(interruptions, BatchKind::kVerify, 1000, 2e-3);
  EXPECT_NEAR(interruptions.Seconds(BatchKind::kVerify), 2e-3, 0.1e-3);
  EXPECT_NEAR(interruptions.Seconds(BatchKind::kPropose), 2e-3, 0.1e-3);
}

TEST(InterruptionsTest, AKindWithManyBatchesHasItsOwnMean) {
  Interruptions interruptions;
  for (int i = 0; i < 200; ++i) {
    ObserveMany(interruptions, BatchKind::kVerify, 10, 1e-3);
    ObserveMany(interruptions, BatchKind::kPropose, 10, 3e-3);
  }
  // The mean of both kinds is 2e-3, and counts like 50 batches beside 400.
  EXPECT_NEAR(interruptions.Seconds(BatchKind::kVerify), 1.11e-3, 0.1e-3);
  EXPECT_NEAR(interruptions.Seconds(BatchKind::kPropose), 2.89e-3, 0.1e-3);
}

TEST(InterruptionsTest, AKindThatEndedIsForgotten) {
  Interruptions interruptions;
  ObserveMany(interruptions, BatchKind::kPropose, 1000, 3e-3);
  const double before = interruptions.Seconds(BatchKind::kPropose);
  for (int i = 0; i < 2000; ++i) {
    interruptions.Age();
    interruptions.Observe(BatchKind::kVerify, 0);
  }
  EXPECT_NEAR(before, 3e-3, 0.2e-3);
  EXPECT_LT(interruptions.Seconds(BatchKind::kPropose), 0.7 * before);
  EXPECT_LT(interruptions.Seconds(BatchKind::kVerify), 1e-5);
}

}  // namespace
}  // namespace tandem::interruptions_test
