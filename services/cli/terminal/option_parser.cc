#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

void BindColor(FlagParser& parser, ColorMode& color) {
  parser.OnValue<std::string>("--color", [&color](const std::string& mode) {
    color = mode == "always"  ? ColorMode::kAlways
            : mode == "never" ? ColorMode::kNever
                              : ColorMode::kAuto;
  });
}

UsageError MakeUsageError(Program command, const std::string& message) {
  return {message + "\n       (" + std::string(ProgramName(command)) +
          " --help-all lists the options)"};
}

}  // namespace tandem::cli
