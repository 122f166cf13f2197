#include "services/cli/server_plan.h"

#include <unistd.h>

#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/heartbeat.h"
#include "common/status.h"
#include "services/cli/listen_address.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

constexpr char kEmbeddedPair[] = "tales";  // its folder, and the name of its target
constexpr char kEmbeddedDraft[] = "tales-draft";

absl::Status CheckFolder(const std::string& option, const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return absl::OkStatus();
  return InvalidArgument(option + ": " + folder.string() +
                         (fs::exists(folder, ignored) ? " is not a folder" : " does not exist") +
                         " (want a model's folder in Hugging Face layout)");
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
                         "; say where with --models, or name a model with --target");
}

template <typename Number>
void AddIfSet(std::vector<std::string>& command, const std::string& option,
              const std::optional<Number>& value) {
  if (value) command.insert(command.end(), {option, std::to_string(*value)});
}

void AddIfSet(std::vector<std::string>& command, const std::string& option,
              const std::string& value) {
  if (!value.empty()) command.insert(command.end(), {option, value});
}

ChildSpec WorkerSpec(const std::string& name, const fs::path& executable, const fs::path& model,
                     const std::string& model_name, const std::optional<uint64_t>& kv_cache_bytes,
                     const std::optional<uint64_t>& gpu_memory_bytes, const ServerOptions& options,
                     const RuntimeDirectory& runtime) {
  ChildSpec spec;
  spec.name = name;
  spec.listen = runtime.SocketAddress(name + ".sock");
  spec.command = {executable.string(), "--model", model.string(), "--exit-with-parent"};
  AddIfSet(spec.command, "--model-name", model_name);
  AddIfSet(spec.command, "--threads", options.threads);
  AddIfSet(spec.command, "--max-slots", options.max_slots);
  AddIfSet(spec.command, "--max-context", options.max_context);
  AddIfSet(spec.command, "--kv-cache-bytes", kv_cache_bytes);
  AddIfSet(spec.command, "--backend", options.backend);
  AddIfSet(spec.command, "--gpu", options.gpu);
  AddIfSet(spec.command, "--gpu-memory-bytes", gpu_memory_bytes);
  AddIfSet(spec.command, "--log-format", options.log_format);
  return spec;
}

}  // namespace

fs::path ExecutableFolder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

absl::StatusOr<ModelFolders> FindModels(const ServerOptions& options) {
  ModelFolders models;
  if (options.target.empty()) {
    if (!options.draft.empty()) {
      return InvalidArgument(
          "--draft: names a drafter, but no --target says for which model (both must share a "
          "tokenizer)");
    }
    TANDEM_ASSIGN_OR_RETURN(const fs::path pair, FindEmbeddedPair(options.models));
    models = {pair / "target", pair / "draft", kEmbeddedPair, kEmbeddedDraft};
  } else {
    models = {options.target, options.draft, "", ""};
  }
  TANDEM_RETURN_IF_ERROR(CheckFolder("--target", models.target));
  if (options.drafter == "none") models.draft.clear();
  if (!models.draft.empty()) TANDEM_RETURN_IF_ERROR(CheckFolder("--draft", models.draft));
  return models;
}

absl::StatusOr<SupervisorOptions> PlanServer(const ServerOptions& options,
                                             const ModelFolders& models,
                                             const RuntimeDirectory& runtime,
                                             const fs::path& executables) {
  TANDEM_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListenAddress(options.listen));
  if (!IsLocal(listen) && !options.insecure) {
    return InvalidArgument(
        "--listen: " + options.listen +
        " can be reached from other machines, and what is sent there is neither encrypted nor "
        "authenticated; listen on 127.0.0.1 or unix:PATH, or accept that with --insecure");
  }
  TANDEM_RETURN_IF_ERROR(CheckFree(listen));

  const bool drafts = !models.draft.empty();
  std::vector<std::string> names = {"tandem-verifier", "tandem-router"};
  if (drafts) names.emplace_back("tandem-draft");
  for (const std::string& name : names) {
    if (access((executables / name).c_str(), X_OK) != 0) {
      return NotFound("the executable " + (executables / name).string() +
                      " is missing: it belongs beside tandem");
    }
  }

  SupervisorOptions plan;
  plan.restart.start_timeout = std::chrono::seconds(options.start_seconds);
  plan.heartbeat_timeout_seconds = options.heartbeat_timeout.value_or(kHeartbeatTimeoutSeconds);
  plan.workers.push_back(WorkerSpec("verifier", executables / "tandem-verifier", models.target,
                                    models.target_name, options.kv_cache_bytes,
                                    options.gpu_memory_bytes, options, runtime));
  plan.workers.back().command.insert(plan.workers.back().command.end(),
                                     {"--ring-dir", runtime.path().string()});
  if (drafts) {
    plan.workers.push_back(WorkerSpec("draft", executables / "tandem-draft", models.draft,
                                      models.draft_name, options.draft_kv_cache_bytes,
                                      options.draft_gpu_memory_bytes, options, runtime));
    plan.workers.back().optional = true;
  }

  ChildSpec& router = plan.router;
  router.name = "router";
  router.listen = options.listen;
  router.stop_timeout = std::chrono::seconds(options.drain_seconds + 5);
  router.command = {(executables / "tandem-router").string(),
                    "--target",
                    models.target.string(),
                    "--verifier",
                    plan.workers[0].listen,
                    "--drafter",
                    drafts ? plan.workers[1].listen : "none",
                    "--drain-seconds",
                    std::to_string(options.drain_seconds),
                    "--exit-with-parent"};
  AddIfSet(router.command, "--draft-length", options.draft_length);
  AddIfSet(router.command, "--max-slots", options.max_slots);
  AddIfSet(router.command, "--max-queue", options.max_queue);
  AddIfSet(router.command, "--model-name", models.target_name);
  AddIfSet(router.command, "--transport", options.transport);
  if (options.heartbeat_timeout) {
    router.command.insert(router.command.end(),
                          {"--heartbeat-timeout", absl::StrCat(*options.heartbeat_timeout)});
  }
  AddIfSet(router.command, "--audit-fraction", options.audit_fraction);
  for (const auto& [name, value] : options.router_flags) AddIfSet(router.command, name, value);
  if (options.audit_fails_readiness) router.command.emplace_back("--audit-fails-readiness");
  if (options.insecure) router.command.emplace_back("--insecure");
  if (options.log_prompts) router.command.emplace_back("--log-prompts");
  AddIfSet(router.command, "--log-format", options.log_format);
  return plan;
}

}  // namespace tandem::cli
