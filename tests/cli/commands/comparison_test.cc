#include "services/cli/commands/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

TEST(ComparisonTest, AComparisonSaysWhetherTheTextIsTheSame) {
  Comparison comparison = {.text = Comparison::Text::kIdentical,
                           .drafted_tokens_per_second = 800,
                           .plain_tokens_per_second = 400,
                           .speedup = {.ratio = 2, .low = 1.9, .high = 2.1, .pairs = 5}};
  const std::string text = RenderComparison(comparison, Palette(false));
  EXPECT_THAT(text,
              HasSubstr("2.00× (95 % interval 1.90 – 2.10, 5 interleaved pairs of this prompt)"));
  EXPECT_THAT(text, HasSubstr("identical"));
  comparison.text = Comparison::Text::kDiffers;
  comparison.first_difference = 17;
  EXPECT_THAT(RenderComparison(comparison, Palette(false)), HasSubstr("DIFFERS from token 17"));
  comparison.text = Comparison::Text::kNotPromised;
  EXPECT_THAT(RenderComparison(comparison, Palette(false)), HasSubstr("not compared"));
}

TEST(ComparisonTest, FewerThanFivePairsHaveNoInterval) {
  EXPECT_EQ(FormatSpeedup({.ratio = 1.9, .low = 0.03, .high = 59, .pairs = 4}),
            "1.90× (4 pairs: too few for an interval)");
  EXPECT_EQ(FormatSpeedup({.ratio = 1.9, .low = 1.9, .high = 1.9, .pairs = 1}),
            "1.90× (one pair: too few for an interval)");
}

}  // namespace
}  // namespace tandem::cli
