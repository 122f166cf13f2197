// `tandem generate --compare`: one prompt with and without drafting.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_COMPARISON_H_
#define TANDEM_SERVICES_CLI_COMMANDS_COMPARISON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "services/cli/bench/predictions.h"
#include "services/cli/client/generation_client.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

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

// The two sides of the comparison, for a request that `streamed` answered: the same seed, with or
// without drafting.
v1::GenerateRequest OneSide(const v1::GenerateRequest& request,
                            const v1::GenerateResponse& streamed, bool drafting);

// The streamed run is not part of the measurement, because printing costs time too. Both sides run
// again without output, in turns, for four seconds, or up to a minute if five pairs take longer.
absl::StatusOr<Comparison> Compare(const v1::GenerateRequest& request,
                                   const v1::GenerateResponse& streamed, GenerationClient& client);

// Returns several lines, each with its newline.
std::string RenderComparison(const Comparison& comparison, const Palette& palette);

// The comparison's part of the JSON output.
nlohmann::json ToJson(const Comparison& comparison);

// Returns "1.93× (95 % interval 1.88 – 1.99, 5 interleaved pairs of this prompt)". If there are too
// few pairs for an interval, the text says so instead.
std::string FormatSpeedup(const RatioInterval& speedup);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_COMPARISON_H_
