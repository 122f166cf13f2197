// Turns options into the processes of a server: their models, executables and sockets.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_PLAN_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_PLAN_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/supervisor/runtime_directory.h"
#include "services/cli/supervisor/server_options.h"
#include "services/cli/supervisor/supervisor.h"

namespace tandem::cli {

// A model, and its name in the API. Empty: the name of its folder.
struct NamedModel {
  std::filesystem::path folder;
  std::string name;
};

struct ModelFolders {
  NamedModel target;
  std::vector<NamedModel> drafts;  // each has a worker of its own
  std::filesystem::path heads;     // heads of the target; empty: none
};

// Returns what drafts without a draft model: the lookups of --drafters, and the heads, with commas
// between them.
std::string LookupsOf(const ServerOptions& options);

// Shown if a person names only a target.
inline constexpr char kNoDrafterNote[] =
    "no --draft is named, so there is no drafter: decoding plainly";

// Finds existing folders. INVALID_ARGUMENT names the wrong option. The embedded pair is searched
// for in --models if given. Otherwise it is searched for in the source tree of this build, and then
// in ../share/tandem/models beside the executable.
absl::StatusOr<ModelFolders> FindModels(const ServerOptions& options);

// Returns the folder of this process's executable.
std::filesystem::path ExecutableFolder();

// INVALID_ARGUMENT: --listen or --admin is not an address, or other machines can reach the address
// without TLS, tokens or --insecure, or a file for TLS or tokens is not valid. RESOURCE_EXHAUSTED:
// an address is taken. NOT_FOUND: an executable is missing.
absl::StatusOr<SupervisorOptions> PlanServer(const ServerOptions& options,
                                             const ModelFolders& models,
                                             const RuntimeDirectory& runtime,
                                             const std::filesystem::path& executables);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_PLAN_H_
