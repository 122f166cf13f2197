// `tandem index build`
#ifndef TANDEM_SERVICES_CLI_INDEX_INDEX_COMMAND_H_
#define TANDEM_SERVICES_CLI_INDEX_INDEX_COMMAND_H_

#include <string>
#include <vector>

#include "services/cli/supervisor/server_options.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct IndexOptions {
  std::string corpus;  // a file, or a folder of files
  std::string output;
  ServerOptions server;  // target and models
};

// Tokenizes the corpus and writes its index. Returns the exit code.
int BuildIndex(const IndexOptions& options, Console& console);

// The arguments after `tandem index build`.
Parsed<IndexOptions> ParseIndexBuild(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_INDEX_INDEX_COMMAND_H_
