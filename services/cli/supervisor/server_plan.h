// From options to the three processes: which models, which executables, which sockets.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_PLAN_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_PLAN_H_

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "services/cli/supervisor/runtime_directory.h"
#include "services/cli/supervisor/server_options.h"
#include "services/cli/supervisor/supervisor.h"

namespace tandem::cli {

struct ModelFolders {
  std::filesystem::path target;
  std::filesystem::path draft;  // empty: no drafter
  // What they are called in the API; empty: as their folders.
  std::string target_name;
  std::string draft_name;
};

// For a person who names a target alone.
inline constexpr char kNoDrafterNote[] =
    "no --draft is named, so there is no drafter: decoding plainly";

// Folders that exist. INVALID_ARGUMENT names the option at fault.
// The embedded pair is looked for in --models, else in the sources that this was built from, else
// in ../share/tandem/models beside the executable.
absl::StatusOr<ModelFolders> FindModels(const ServerOptions& options);

// Of this process.
std::filesystem::path ExecutableFolder();

// INVALID_ARGUMENT when --listen or --admin is no address, or one that other machines can reach
// without TLS, tokens or --insecure, or when a file of these is none; RESOURCE_EXHAUSTED when it is taken; NOT_FOUND when an executable is missing.
absl::StatusOr<SupervisorOptions> PlanServer(const ServerOptions& options,
                                             const ModelFolders& models,
                                             const RuntimeDirectory& runtime,
                                             const std::filesystem::path& executables);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_PLAN_H_
