// The summary after a completion: its cost, and the effect of speculation.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_
#define TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_

#include <string>

#include "services/cli/bench/predictions.h"
#include "services/cli/bench/run_totals.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// Returns several lines, each with its newline.
std::string RenderSummary(const v1::GenerateResponse& response, const Palette& palette);

// Least number of pairs from which an interval is shown.
inline constexpr int kLeastPairs = 5;

// The results of one prompt with and without drafting.
struct Comparison {
  enum class Text {
    kIdentical,
    kDiffers,
    kNotPromised,  // plain sampling: the distributions are equal, the draws may differ
    kNotLossless,  // lenience was on
  };
  Text text = Text::kNotPromised;
  size_t first_difference = 0;  // for kDiffers: index of the first token that differs
  // Not empty: nothing was drafted, so there is nothing to compare.
  std::string why_no_drafts = {};
  double drafted_tokens_per_second = 0;
  double plain_tokens_per_second = 0;
  RatioInterval speedup;  // speedup of tokens/s, over interleaved pairs
};

std::string RenderComparison(const Comparison& comparison, const Palette& palette);

// Returns "1.93× (95 % interval 1.88 – 1.99, 5 interleaved pairs)". With fewer pairs than
// kLeastPairs, the text has no interval and says so.
std::string FormatSpeedup(const RatioInterval& speedup);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_
