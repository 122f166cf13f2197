// What is shown after a completion: what it cost and what speculation did for it.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_
#define TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_

#include <string>

#include "services/cli/bench/predictions.h"
#include "services/cli/bench/run_totals.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// Several lines, each with its newline.
std::string RenderSummary(const v1::GenerateResponse& response, const Palette& palette);

// The same prompt with and without drafting.
struct Comparison {
  enum class Text {
    kIdentical,
    kDiffers,
    kNotPromised,  // plain sampling: the distribution is equal, a draw need not be
    kNotLossless,  // lenience was on
  };
  Text text = Text::kNotPromised;
  size_t first_difference = 0;  // kDiffers: index of the first token that differs
  double drafted_tokens_per_second = 0;
  double plain_tokens_per_second = 0;
  RatioInterval speedup;  // of tokens/s, over interleaved pairs
};

std::string RenderComparison(const Comparison& comparison, const Palette& palette);

// "1.93×" or, with several pairs, "1.93× (95 % interval 1.88 – 1.99, 5 interleaved pairs)".
std::string FormatSpeedup(const RatioInterval& speedup);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_
