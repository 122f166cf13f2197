#include "services/router/engine/sessions/hang_detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace tandem {
namespace {

// Checks at every ping until `until`, and lets the worker say that it computes without progress, if
// it answers at all. Returns the verdict.
std::string Watch(HangDetector* detector, bool answers, double until) {
  v1::WatchPong pong;
  pong.set_computing(true);
  while (detector->ping_at() <= until) {
    const double now = detector->ping_at();
    if (std::string why = detector->Check(now); !why.empty()) return why;
    if (answers) detector->OnPong(pong, now);
  }
  return "";
}

TEST(HangDetectorTest, ASilentWorkerHangs) {
  HangDetector detector(3);
  EXPECT_TRUE(std::isinf(detector.ping_at()));
  detector.Begin(10);
  EXPECT_EQ(Watch(&detector, false, 12.9), "");
  EXPECT_EQ(Watch(&detector, false, 13.1), "the worker hangs: it gave no sign of life for 3 s");
  detector.End();
  EXPECT_TRUE(std::isinf(detector.ping_at()));
}

TEST(HangDetectorTest, PatienceDoublesUntilABatchIsDone) {
  HangDetector detector(3);
  detector.Begin(0);
  EXPECT_EQ(Watch(&detector, true, 100), "the worker hangs: it computed without progress for 3 s");
  detector.Begin(100);
  EXPECT_EQ(Watch(&detector, true, 200), "the worker hangs: it computed without progress for 6 s");
  detector.Begin(200);
  EXPECT_EQ(Watch(&detector, true, 300), "the worker hangs: it computed without progress for 12 s");
  detector.OnBatchDone(0.1);
  detector.Begin(300);
  EXPECT_EQ(Watch(&detector, true, 400), "the worker hangs: it computed without progress for 3 s");
}

TEST(HangDetectorTest, BatchTimesThatCannotBeTrueAreIgnored) {
  HangDetector detector(3);
  for (const double seconds : {-1.0, 0.0, 1e9, static_cast<double>(NAN)}) {
    detector.OnBatchDone(seconds);
  }
  detector.Begin(0);
  EXPECT_EQ(Watch(&detector, false, 100), "the worker hangs: it gave no sign of life for 3 s");
  detector.OnBatchDone(2);
  detector.Begin(100);
  EXPECT_EQ(Watch(&detector, false, 200), "the worker hangs: it gave no sign of life for 20 s");
}

TEST(HangDetectorTest, WithoutATimeoutNoWorkerHangs) {
  HangDetector detector(0);
  detector.Begin(0);
  EXPECT_EQ(Watch(&detector, false, 1000), "");
}

}  // namespace
}  // namespace tandem
