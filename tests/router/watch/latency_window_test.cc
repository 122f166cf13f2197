#include "services/router/watch/latency_window.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(LatencyWindowTest, QuantilesAreWithinATwentieth) {
  LatencyWindow window;
  for (int i = 1; i <= 1000; ++i) window.Add(Latency::kTotal, 0.001 * i);
  const LatencyQuantiles got = window.Quantiles(Latency::kTotal);
  EXPECT_EQ(got.num_samples, 1000u);
  EXPECT_NEAR(got.p50 / 0.5, 1, 0.05);
  EXPECT_NEAR(got.p95 / 0.95, 1, 0.05);
  EXPECT_NEAR(got.p99 / 0.99, 1, 0.05);
}

TEST(LatencyWindowTest, EachKindIsCountedByItself) {
  LatencyWindow window;
  window.Add(Latency::kQueue, 1);
  EXPECT_EQ(window.Quantiles(Latency::kQueue).num_samples, 1u);
  EXPECT_EQ(window.Quantiles(Latency::kFirstToken).num_samples, 0u);
  EXPECT_EQ(window.Quantiles(Latency::kFirstToken).p99, 0);
}

TEST(LatencyWindowTest, OldStepsAreForgotten) {
  LatencyWindow window;
  window.Add(Latency::kQueue, 1);
  for (size_t i = 1; i < LatencyWindow::kSteps; ++i) window.Advance();
  EXPECT_EQ(window.Quantiles(Latency::kQueue).num_samples, 1u);
  window.Add(Latency::kQueue, 2);
  window.Advance();
  EXPECT_EQ(window.Quantiles(Latency::kQueue).num_samples, 1u);
  EXPECT_NEAR(window.Quantiles(Latency::kQueue).p50, 2, 0.1);
}

TEST(LatencyWindowTest, ExtremesHaveABucket) {
  LatencyWindow window;
  for (const double seconds : {0.0, -1.0, 1e9}) window.Add(Latency::kPerToken, seconds);
  const LatencyQuantiles got = window.Quantiles(Latency::kPerToken);
  EXPECT_EQ(got.num_samples, 3u);
  EXPECT_LT(got.p50, 2e-5);
  EXPECT_GT(got.p99, 9e3);
}

}  // namespace
}  // namespace tandem
