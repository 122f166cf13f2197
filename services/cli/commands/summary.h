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
std::string RenderSummary(const v1::GenerateResponse& response, bool shows_speed,
                          const Palette& palette);

// Returns a line of a summary: its label, dim, and its text.
std::string SummaryLine(const std::string& label, const std::string& text, const Palette& palette);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_SUMMARY_H_
