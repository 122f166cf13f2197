#include "services/cli/supervisor/server_plan.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/flags/flag_parser.h"
#include "common/model/checkpoint/foreign_model.h"
#include "common/retrieval/corpus.h"
#include "common/rpc/protocol.h"
#include "common/status.h"
#include "services/cli/client/listen_address.h"
#include "services/cli/supervisor/lookup_names.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

constexpr char kEmbeddedPair[] = "tales";  // name of its folder and of its target
constexpr char kEmbeddedDraft[] = "tales-draft";

absl::Status CheckFolder(const std::string& option, const fs::path& folder) {
  const absl::Status status = CheckModelFolder(folder);
  return status.ok() ? status : InvalidArgument(absl::StrCat(option, ": ", status.message()));
}

absl::StatusOr<fs::path> FindEmbeddedPair(const std::string& models) {
  std::error_code ignored;
  if (!models.empty()) {
    const fs::path pair = fs::path(models) / kEmbeddedPair;
    if (fs::is_directory(pair / "target", ignored)) return pair;
    return InvalidArgument("--models: " + models + " holds no " + kEmbeddedPair + "/target");
  }
  const std::vector<fs::path> places = {fs::path(TANDEM_MODELS_SOURCE_DIR),
                                        ExecutableFolder() / "../share/tandem/models"};
  for (const fs::path& place : places) {
    const fs::path pair = place / kEmbeddedPair;
    if (fs::is_directory(pair / "target", ignored)) return pair;
  }
  return InvalidArgument("the embedded models are neither in " + places[0].string() + " nor in " +
                         places[1].lexically_normal().string() +
                         "; give their folder with --models, or name a model with --target");
}

using Arguments = std::vector<std::string>;

void Append(Arguments& command, const Arguments& more) {
  command.insert(command.end(), more.begin(), more.end());
}

void AddIfSet(Arguments& command, const std::string& option, const std::string& value) {
  if (!value.empty()) Append(command, {option, value});
}

// Refuses an address that other machines can reach, unless `allowed`. `ways` names the flags that
// make the address safe.
absl::Status CheckLocal(const ListenAddress& address, const std::string& text,
                        const std::string& option, bool allowed, const std::string& ways) {
  if (allowed || IsLocal(address)) return absl::OkStatus();
  return InvalidArgument(option + ": " + text + " can be reached from other machines: give " +
                         ways + ", or allow it with --insecure; or listen on 127.0.0.1" +
                         (option == "--listen" ? " or unix:PATH" : ""));
}

// Returns the values of --admin for the router, the verifier and the drafters, in this order.
absl::StatusOr<std::vector<std::string>> PlanAdmin(const ServerOptions& options,
                                                   size_t num_processes) {
  if (options.admin == "none") return std::vector<std::string>(num_processes, "none");
  const bool by_itself = options.admin == "auto";
  const std::string text = by_itself ? absl::StrCat("127.0.0.1:", kAdminPort) : options.admin;
  TANDEM_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text, "--admin"));
  if (!address.unix_path.empty()) {
    return InvalidArgument("--admin: got \"" + text + "\", want HOST:PORT, none or auto");
  }
  TANDEM_RETURN_IF_ERROR(CheckLocal(address, text, "--admin",
                                    options.insecure || !options.security.token_file.empty(),
                                    "--token-file"));
  // Without a drafter too, so that the port that is allowed does not depend on it.
  const size_t num_ports = std::max<size_t>(num_processes, 3);
  const size_t last_port = 65536 - num_ports;
  if (address.port > last_port) {
    return InvalidArgument(absl::StrCat("--admin: got port ", address.port, ", want at most ",
                                        last_port, ": the workers get the next ", num_ports - 1,
                                        " ports"));
  }
  const std::string host =
      address.host.find(':') == std::string::npos ? address.host : "[" + address.host + "]";
  if (address.port != 0) {
    for (size_t next = 0; next < num_ports; ++next) {
      ListenAddress of_process = address;
      of_process.port = static_cast<uint16_t>(address.port + next);
      const absl::Status status = CheckFree(of_process, "--admin");
      if (status.ok()) continue;
      if (!by_itself) return status;
      address.port = 0;
      break;
    }
  }
  std::vector<std::string> addresses;
  for (size_t next = 0; next < num_processes; ++next) {
    addresses.push_back(absl::StrCat(host, ":", address.port == 0 ? 0 : address.port + next));
  }
  return addresses;
}

// Adds the flags for TLS and tokens at a process's own server: the router's API, and the admin
// ports of the workers.
void AddServerSecurity(Arguments& command, const ServerOptions& options) {
  AddIfSet(command, "--tls-certificate", options.security.tls.certificate);
  AddIfSet(command, "--tls-key", options.security.tls.key);
  AddIfSet(command, "--token-file", options.security.token_file);
  if (options.insecure) command.emplace_back("--insecure");
}

ChildSpec WorkerSpec(Program program, const std::string& name, const fs::path& executables,
                     const NamedModel& model, const std::string& admin,
                     const ServerOptions& options, const RuntimeDirectory& runtime) {
  ChildSpec spec;
  spec.name = name;
  spec.listen = runtime.SocketAddress(spec.name + ".sock");
  spec.command = {(executables / ProgramName(program)).string(), "--model", model.folder.string(),
                  "--exit-with-parent", "--report-refusal"};
  AddIfSet(spec.command, "--model-name", model.name);
  Append(spec.command, HandedOnArguments(options.handed_on, program));
  // These flags are passed even if they have default values, because the children inherit the
  // environment.
  Append(spec.command, {"--log-format", options.log_format, "--admin", admin});
  // The worker itself listens on a Unix socket in a private folder. Only its admin port needs
  // security.
  if (admin != "none") AddServerSecurity(spec.command, options);
  return spec;
}

ChildSpec RouterSpec(const fs::path& executables, const ModelFolders& models,
                     const std::vector<ChildSpec>& workers, const std::string& admin,
                     const ServerOptions& options) {
  ChildSpec spec;
  std::vector<std::string> drafters;
  for (size_t i = 1; i < workers.size(); ++i) drafters.push_back(workers[i].listen);
  spec.name = "router";
  spec.listen = options.listen;
  spec.stop_timeout = std::chrono::seconds(options.drain_seconds + 5);
  spec.command = {(executables / ProgramName(Program::kRouter)).string(),
                  "--target",
                  models.target.folder.string(),
                  "--verifier",
                  workers[0].listen,
                  "--drafter",
                  drafters.empty() ? "none" : absl::StrJoin(drafters, "+"),
                  "--drain-seconds",
                  std::to_string(options.drain_seconds),
                  "--exit-with-parent",
                  "--report-refusal"};
  AddIfSet(spec.command, "--model-name", models.target.name);
  Append(spec.command, HandedOnArguments(options.handed_on, Program::kRouter));
  AddServerSecurity(spec.command, options);
  AddIfSet(spec.command, "--tls-client-ca", options.security.tls.authorities);
  Append(spec.command, {"--log-format", options.log_format, "--admin", admin});
  return spec;
}

// The gateway of --http. Checks its address.
absl::StatusOr<ChildSpec> GatewaySpec(const fs::path& executables, const std::string& admin,
                                      const ServerOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(options.http, "--http"));
  if (!address.unix_path.empty()) {
    return InvalidArgument("--http: got \"" + options.http + "\", want HOST:PORT or none");
  }
  if (!options.security.tls.certificate.empty()) {
    return InvalidArgument(
        "--http: the gateway does not know which authority signed --tls-certificate; start "
        "tandem-gateway by itself, with --router-ca");
  }
  TANDEM_RETURN_IF_ERROR(CheckLocal(address, options.http, "--http",
                                    options.insecure || !options.security.token_file.empty(),
                                    "--token-file"));
  TANDEM_RETURN_IF_ERROR(CheckFree(address, "--http"));
  ChildSpec spec;
  spec.name = "gateway";
  spec.listen = options.http;
  spec.optional = true;
  spec.stop_timeout = std::chrono::seconds(options.drain_seconds + 5);
  spec.command = {(executables / ProgramName(Program::kGateway)).string(), "--drain-seconds",
                  std::to_string(options.drain_seconds), "--exit-with-parent", "--report-refusal"};
  AddServerSecurity(spec.command, options);
  AddIfSet(spec.command, "--router-token-file", options.security.token_file);
  Append(spec.command, {"--log-format", options.log_format, "--admin", admin});
  return spec;
}

// Whether --drafters was given and lists this drafter.
bool Lists(const ServerOptions& options, absl::string_view drafter) {
  const auto found = options.handed_on.find("--drafters");
  if (found == options.handed_on.end()) return false;
  const std::vector<absl::string_view> names = absl::StrSplit(found->second, ',');
  return std::find(names.begin(), names.end(), drafter) != names.end();
}

// Returns the drafters in the verifier that the server lists, or that requests name.
std::vector<std::string> WantedSelfDrafters(const ServerOptions& options) {
  std::vector<std::string> wanted;
  for (const std::string_view name : kSelfDrafterNames) {
    if (Lists(options, {name.data(), name.size()}) || name == options.self_drafter) {
      wanted.emplace_back(name);
    }
  }
  return wanted;
}

// Returns the folder of heads that is given, or that of the embedded pair if one of its heads is
// asked for. `pair` is empty for other models.
absl::StatusOr<fs::path> FindHeads(const ServerOptions& options, const fs::path& pair) {
  std::error_code ignored;
  if (const auto given = options.handed_on.find("--heads"); given != options.handed_on.end()) {
    if (fs::is_directory(given->second, ignored)) return fs::path(given->second);
    return InvalidArgument("--heads: " + given->second + " is no folder (want a folder of heads)");
  }
  const std::vector<std::string> wanted = WantedSelfDrafters(options);
  if (wanted.empty()) return fs::path();
  if (wanted.size() > 1) {
    return InvalidArgument("--drafters: got " + absl::StrJoin(wanted, " and ") +
                           ", but a server has heads of one kind");
  }
  if (!pair.empty() && fs::is_directory(pair / wanted[0], ignored)) return pair / wanted[0];
  return InvalidArgument("the drafter \"" + wanted[0] + "\" needs heads (--heads DIR)");
}

// Returns the models of --draft: one folder, or several with commas between them. Two models of one
// name get the names of their parent folders too.
absl::StatusOr<std::vector<NamedModel>> DraftModelsOf(const std::string& text) {
  std::vector<NamedModel> models;
  std::error_code ignored;
  if (text.empty()) return models;
  std::vector<std::string> folders = {text};
  if (!fs::is_directory(text, ignored)) folders = absl::StrSplit(text, ',');
  if (folders.size() > kMaxDraftModels) {
    return InvalidArgument(absl::StrCat("--draft: got ", folders.size(),
                                        " folders, allowed: at most ", kMaxDraftModels));
  }
  std::map<std::string, int> uses;
  std::set<fs::path> seen;
  for (const std::string& folder : folders) {
    if (folder.empty()) return InvalidArgument("--draft: got an empty name in \"" + text + "\"");
    const fs::path path = fs::absolute(fs::path(folder) / "").lexically_normal().parent_path();
    if (!seen.insert(path).second) {
      return InvalidArgument("--draft: " + folder + " is given twice");
    }
    ++uses[path.filename()];
    models.push_back({folder, (path.parent_path().filename() / path.filename()).string()});
  }
  for (NamedModel& model : models) {
    if (uses[fs::path(model.name).filename()] == 1) model.name.clear();
  }
  return models;
}

// The router checks the same, but models load before it does.
absl::Status CheckRetrieval(const ServerOptions& options, const fs::path& target) {
  const auto found = options.handed_on.find("--retrieval");
  if (found == options.handed_on.end()) {
    return Lists(options, "retrieval")
               ? InvalidArgument("--drafters: \"retrieval\" needs an index (--retrieval FILE)")
               : absl::OkStatus();
  }
  return OpenCorpus(found->second, target).status();
}

}  // namespace

fs::path ExecutableFolder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::string LookupsOf(const ServerOptions& options) {
  std::vector<std::string> lookups;
  for (const std::string_view name : kLookupNames) {
    // A prediction comes with a request, and not with a server.
    if (name != "prediction" && Lists(options, {name.data(), name.size()})) {
      lookups.emplace_back(name);
    }
  }
  // An index is used unless the drafters are given.
  if (!options.handed_on.contains("--drafters") && options.handed_on.contains("--retrieval")) {
    lookups.emplace_back("retrieval");
  }
  const std::vector<std::string> heads = WantedSelfDrafters(options);
  lookups.insert(lookups.end(), heads.begin(), heads.end());
  // Heads of which nobody has said the kind are used too.
  if (heads.empty() && options.handed_on.contains("--heads")) lookups.emplace_back("heads");
  return absl::StrJoin(lookups, ",");
}

absl::StatusOr<ModelFolders> FindModels(const ServerOptions& options) {
  ModelFolders models;
  fs::path pair;
  if (options.target.empty()) {
    if (!options.draft.empty()) {
      return InvalidArgument(
          "--draft names a drafter, but no --target names its target (both must share a "
          "tokenizer)");
    }
    TANDEM_ASSIGN_OR_RETURN(pair, FindEmbeddedPair(options.models));
    models.target = {pair / "target", kEmbeddedPair};
    models.drafts = {{pair / "draft", kEmbeddedDraft}};
  } else {
    models.target = {options.target, ""};
    TANDEM_ASSIGN_OR_RETURN(models.drafts, DraftModelsOf(options.draft));
  }
  TANDEM_RETURN_IF_ERROR(CheckFolder("--target", models.target.folder));
  if (options.drafter == "none") models.drafts.clear();
  if (models.drafts.empty() && Lists(options, "model")) {
    return InvalidArgument(
        "--drafters: got \"model\", allowed without a draft model: the others (--draft DIR names a "
        "draft model)");
  }
  for (const NamedModel& draft : models.drafts) {
    TANDEM_RETURN_IF_ERROR(CheckFolder("--draft", draft.folder));
  }
  TANDEM_RETURN_IF_ERROR(CheckRetrieval(options, models.target.folder));
  TANDEM_ASSIGN_OR_RETURN(models.heads, FindHeads(options, pair));
  return models;
}

absl::StatusOr<SupervisorOptions> PlanServer(const ServerOptions& options,
                                             const ModelFolders& models,
                                             const RuntimeDirectory& runtime,
                                             const fs::path& executables) {
  TANDEM_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListenAddress(options.listen));
  // The processes read these files too. Checking the files here reports a mistake before models
  // load.
  const auto security = ServerSecurity::Open(options.security);
  if (!security.ok()) return security.status();
  TANDEM_RETURN_IF_ERROR(
      CheckLocal(listen, options.listen, "--listen",
                 options.insecure || security->tls != nullptr || security->tokens != nullptr,
                 "TLS (--tls-certificate and --tls-key) or --token-file"));
  TANDEM_RETURN_IF_ERROR(CheckFree(listen));
  const bool has_gateway = options.http != "none";
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> admin,
                          PlanAdmin(options, 2 + models.drafts.size() + (has_gateway ? 1 : 0)));

  const bool drafts = !models.drafts.empty();
  std::vector<std::string> names = {"tandem-verifier", "tandem-router"};
  if (drafts) names.emplace_back("tandem-draft");
  if (has_gateway) names.emplace_back("tandem-gateway");
  for (const std::string& name : names) {
    if (access((executables / name).c_str(), X_OK) != 0) {
      return NotFound("the executable " + (executables / name).string() +
                      " is missing: it must be in the folder of tandem");
    }
  }

  SupervisorOptions plan;
  plan.restart.start_timeout = std::chrono::seconds(options.start_seconds);
  plan.heartbeat_timeout_seconds = options.heartbeat_timeout_seconds;
  plan.workers.push_back(WorkerSpec(Program::kVerifier, "verifier", executables, models.target,
                                    admin[1], options, runtime));
  Append(plan.workers.back().command, {"--ring-dir", runtime.path().string()});
  if (!options.handed_on.contains("--heads")) {
    AddIfSet(plan.workers.back().command, "--heads", models.heads.string());
  }
  for (size_t i = 0; i < models.drafts.size(); ++i) {
    // The router calls them so, too.
    const std::string name = i == 0 ? "draft" : absl::StrCat("draft-", i + 1);
    plan.workers.push_back(WorkerSpec(Program::kDraft, name, executables, models.drafts[i],
                                      admin[2 + i], options, runtime));
    plan.workers.back().optional = true;
  }
  plan.router = RouterSpec(executables, models, plan.workers, admin[0], options);
  if (has_gateway) {
    TANDEM_ASSIGN_OR_RETURN(plan.gateway, GatewaySpec(executables, admin.back(), options));
  }
  if (drafts && !options.draft_optional) {
    plan.router.first_start_arguments = {"--drafter-required-at-start"};
  }
  return plan;
}

}  // namespace tandem::cli
