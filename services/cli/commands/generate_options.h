// What `tandem generate` is told.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_GENERATE_OPTIONS_H_
#define TANDEM_SERVICES_CLI_COMMANDS_GENERATE_OPTIONS_H_

#include <string>
#include <vector>

#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

struct GenerateOptions {
  SessionOptions session;
  std::string prompt;           // "-": standard input
  std::string prompt_file;      // instead of `prompt`
  v1::GenerateRequest request;  // all but the prompt; only what was said on the command line is set
  bool compare = false;
  bool echo = false;  // print the prompt before its continuation
  bool json = false;
  ColorMode color = ColorMode::kAuto;
};

// `arguments` are those after the command's name.
Parsed<GenerateOptions> ParseGenerate(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_GENERATE_OPTIONS_H_
