// The options of `tandem generate`.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_GENERATE_OPTIONS_H_
#define TANDEM_SERVICES_CLI_COMMANDS_GENERATE_OPTIONS_H_

#include <string>
#include <vector>

#include "common/flags/flag_parser.h"
#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

struct GenerateOptions {
  SessionOptions session;
  std::string prompt;       // "-": standard input
  std::string prompt_file;  // used instead of `prompt`
  // The request without its prompt; only fields from the command line are set.
  v1::GenerateRequest request;
  bool compare = false;
  bool race = false;  // with `compare`, and on a terminal: show both streams side by side
  bool echo = false;  // print the prompt before its continuation
  bool json = false;
  ColorMode color = ColorMode::kAuto;
};

// Binds the flags about sampling, lengths, stops and drafting that a request can have. `server` is
// the private server, which gets the drafter that the request names. The setters leave a field
// unset if its flag is not given.
void BindRequest(FlagParser& parser, v1::GenerateRequest* request, ServerOptions& server);

// `arguments` are the arguments after the command's name.
Parsed<GenerateOptions> ParseGenerate(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_GENERATE_OPTIONS_H_
