// Parses the options of a command of `tandem`, with the table of flags.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_OPTION_PARSER_H_
#define TANDEM_SERVICES_CLI_TERMINAL_OPTION_PARSER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/flags/flag_parser.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

// Binds --color.
void BindColor(FlagParser& parser, ColorMode& color);

// Returns `message` with a line that says how to get help for the command.
UsageError MakeUsageError(Program command, const std::string& message);

// Parses into the options that `bind` bound to the parser. `check` returns an error message if the
// options do not fit together. It may also clear options that have no effect beside others.
template <typename Options>
Parsed<Options> ParseOptions(Program command, const std::string& description,
                             std::vector<std::string> arguments,
                             const std::function<void(FlagParser&, Options&)>& bind,
                             const std::function<std::string(const FlagParser&, Options&)>& check) {
  FlagParser parser(command, description);
  Options options;
  bind(parser, options);
  const auto text = parser.Parse(std::move(arguments));
  if (!text.ok()) return MakeUsageError(command, std::string(text.status().message()));
  if (text->has_value()) return ShowText{**text};
  const std::string problem = check(parser, options);
  if (!problem.empty()) return MakeUsageError(command, problem);
  return options;
}

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_OPTION_PARSER_H_
