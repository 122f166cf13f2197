// The options of `tandem batch`.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_OPTIONS_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_OPTIONS_H_

#include <string>
#include <vector>

#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct BatchOptions {
  SessionOptions session;
  std::string input;
  std::string output;
  int concurrency = 0;  // 0: twice the server's slots
};

// `arguments` are the arguments after the command's name.
Parsed<BatchOptions> ParseBatch(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_OPTIONS_H_
