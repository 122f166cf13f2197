// `tandem drafter`
#ifndef TANDEM_SERVICES_CLI_DRAFTER_DRAFTER_COMMAND_H_
#define TANDEM_SERVICES_CLI_DRAFTER_DRAFTER_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/cli/client/client_security.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

enum class DrafterAction : uint8_t {
  kList,
  kLoad,
  kPromote,
  kRollBack,
  kUnload,
  kSwapHeads,
  kRollBackHeads
};

struct DrafterOptions {
  DrafterAction action = DrafterAction::kList;
  std::string model;    // that is loaded or unloaded, or heads that are swapped in
  std::string connect;  // address of a running server
  ClientSecurityOptions security;
  double share = 0.1;
};

// Changes the draft models and the heads of a running server, and prints them. A load waits until
// the model can draft, and a swap until all verifiers have the heads. A model or heads that cannot
// be loaded are given up again. Returns the exit code.
int ManageDrafters(const DrafterOptions& options, Console& console);

// The arguments after `tandem drafter`: the action, and its arguments.
Parsed<DrafterOptions> ParseDrafter(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_DRAFTER_DRAFTER_COMMAND_H_
