#include "services/cli/bench/serve/percentiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::cli {
namespace {

TEST(PercentilesTest, InterpolateLinearlyBetweenValues) {
  // These are the results of numpy.percentile([1, 2, 3, 4], [0, 25, 50, 95, 100]).
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.95), 3.85);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 4);
}

TEST(PercentilesTest, DoNotDependOnTheOrder) {
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back((i * 37) % 101);  // 0 to 100 in mixed order
  const Percentiles of = PercentilesOf(values);
  EXPECT_DOUBLE_EQ(of.p50, 50);
  EXPECT_DOUBLE_EQ(of.p95, 95);
  EXPECT_DOUBLE_EQ(of.p99, 99);
  EXPECT_DOUBLE_EQ(of.mean, 50);
  EXPECT_DOUBLE_EQ(of.max, 100);
  EXPECT_EQ(of.count, 101u);
}

TEST(PercentilesTest, OfOneValueAreThatValue) {
  const Percentiles of = PercentilesOf({3});
  EXPECT_DOUBLE_EQ(of.p50, 3);
  EXPECT_DOUBLE_EQ(of.p99, 3);
}

TEST(PercentilesTest, OfNothingAreZero) {
  const Percentiles of = PercentilesOf({});
  EXPECT_EQ(of.count, 0u);
  EXPECT_DOUBLE_EQ(of.p99, 0);
}

}  // namespace
}  // namespace tandem::cli
