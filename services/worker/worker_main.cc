#include "services/worker/worker_main.h"

#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/admin/admin_server.h"
#include "common/flags/flag_parser.h"
#include "common/log/log.h"
#include "common/rpc/listener.h"
#include "common/security/server_security.h"
#include "common/start_line.h"
#include "common/status.h"
#include "kernels/cpu.h"
#include "services/worker/model_folder_entry.h"
#include "services/worker/stop_signal.h"
#include "services/worker/worker_metrics.h"

namespace tandem {
namespace {

struct Options {
  WorkerModelOptions model;
  std::string listen;
  std::string admin;
  std::filesystem::path ring_dir;
  std::filesystem::path draft_folder;
  std::string guess_drafts = "on";  // or "off"
  LogOptions log;
  ServerSecurityOptions security;
  std::string client_name;
  bool insecure = false;
  double drain_seconds = 0;
  bool exit_with_parent = false;
  bool report_refusal = false;
};

void BindFlags(FlagParser& parser, const WorkerProgram& program, Options& options) {
  parser.Bind("--model", &options.model.folder);
  parser.Bind("--model-name", &options.model.name);
  parser.Bind("--listen", &options.listen);
  parser.Bind("--admin", &options.admin);
  parser.Bind("--threads", &options.model.threads);
  parser.Bind("--max-slots", &options.model.max_slots);
  parser.Bind("--max-context", &options.model.max_context);
  parser.Bind("--kv-cache-bytes", &options.model.kv_cache_bytes);
  parser.Bind("--backend", &options.model.backend);
  parser.Bind("--matrix-units", &options.model.matrix_units);
  parser.Bind("--activation-precision", &options.model.activation_precision);
  parser.Bind("--gpu", &options.model.gpu);
  parser.Bind("--gpu-memory-bytes", &options.model.gpu_memory_bytes);
  if (!program.judges) {
    parser.Bind("--guess-drafts", &options.guess_drafts);
    parser.Bind("--draft-folder", &options.draft_folder);
  } else {
    parser.Bind("--ring-dir", &options.ring_dir);
    parser.Bind("--heads", &options.model.heads);
    parser.Bind("--heads-folder", &options.model.heads_folder);
  }
  parser.Bind("--log-level", &options.log.level);
  parser.Bind("--log-format", &options.log.format);
  parser.Bind("--tls-certificate", &options.security.tls.certificate);
  parser.Bind("--tls-key", &options.security.tls.key);
  parser.Bind("--tls-client-ca", &options.security.tls.authorities);
  parser.Bind("--client-name", &options.client_name);
  parser.Bind("--token-file", &options.security.token_file);
  parser.Bind("--insecure", &options.insecure);
  parser.Bind("--drain-seconds", &options.drain_seconds);
  parser.Bind("--report-refusal", &options.report_refusal);
  parser.Bind("--exit-with-parent", &options.exit_with_parent);
}

void SetUpLogs(const LogOptions& options) {
  SetUpLog(options);
  // gRPC's own log lines repeat what a status says, with less context.
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("grpc: {}", args->message); });
}

// Returns false if the parent has already ended.
bool FollowParent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  return getppid() == parent;
}

// A worker that listens is ready until it is told to stop.
AdminRoutes Routes(const WorkerMetrics& metrics, const std::atomic<bool>& stopping) {
  AdminRoutes routes = MetricsRoutes(metrics.registry());
  routes["/readyz"] = [healthy = routes["/healthz"], &stopping](const std::string& query) {
    return stopping ? AdminResponse{.body = "draining\n", .status = 503} : healthy(query);
  };
  return routes;
}

struct Places {
  Address routers;               // where routers connect
  std::optional<Address> admin;  // none: the worker has no admin server
};

// Returns the addresses of the flags. Refuses those that would serve strangers.
absl::StatusOr<Places> PlacesOf(const Options& options, const ServerSecurity& security) {
  Places places;
  TANDEM_ASSIGN_OR_RETURN(places.routers, Address::Parse(options.listen));
  if (!options.client_name.empty() && !security.mutual_tls()) {
    return InvalidArgument(
        "--client-name is about certificates of routers: give --tls-certificate, --tls-key and "
        "--tls-client-ca too");
  }
  TANDEM_RETURN_IF_ERROR(CheckBindIsLocal(
      places.routers, options.insecure || security.mutual_tls(), "--listen",
      "mutual TLS (--tls-certificate, --tls-key and --tls-client-ca), for whoever connects "
      "commands this worker"));
  if (options.admin == "none") return places;
  TANDEM_ASSIGN_OR_RETURN(places.admin, Address::Parse(options.admin));
  TANDEM_RETURN_IF_ERROR(CheckBindIsLocal(
      *places.admin, options.insecure || security.tokens != nullptr, "--admin", "--token-file"));
  return places;
}

// Loads models of the folder that the operator allows. Empty: there is none.
absl::StatusOr<ModelShelf::Loader> LoaderOf(const Options& options) {
  if (options.draft_folder.empty()) return ModelShelf::Loader();
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.draft_folder, ignored)) {
    return InvalidArgument("--draft-folder: " + options.draft_folder.string() +
                           " is no folder (want a folder of draft models)");
  }
  return [of_model = options.model, folder = options.draft_folder](
             const std::string& name) mutable -> absl::StatusOr<std::unique_ptr<WorkerModel>> {
    TANDEM_ASSIGN_OR_RETURN(of_model.folder,
                            FindInFolder({folder, "--draft-folder", "model"}, name));
    of_model.name = name;
    return WorkerModel::Load(of_model);
  };
}

absl::Status Serve(const WorkerProgram& program, const Options& options,
                   std::unique_ptr<StopSignal> stop_signal, bool* ready) {
  TANDEM_ASSIGN_OR_RETURN(const ServerSecurity security, ServerSecurity::Open(options.security));
  TANDEM_ASSIGN_OR_RETURN(const Places places, PlacesOf(options, security));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerModel> model,
                          WorkerModel::Load(options.model));
  if (!model->why_not_cuda().empty()) spdlog::info("CUDA is not used: {}", model->why_not_cuda());
  TANDEM_ASSIGN_OR_RETURN(ModelShelf::Loader loader, LoaderOf(options));
  ModelShelf models(model.get(), std::move(loader));
  // The metrics outlive the server, which refreshes them until its last session has ended.
  WorkerMetrics metrics(program.judges ? WorkerMetrics::kVerifier : WorkerMetrics::kDrafter,
                        TANDEM_VERSION, &models);
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerServer> server,
      program.start({places.routers, security.tls, options.client_name}, models, options.ring_dir));
  const v1::AttachReply description = model->Describe();
  spdlog::info(
      "{}: {} slots of up to {} tokens, KV cache of {} pages ({} MiB), weights of {} MiB, on {} "
      "({})",
      description.model(), description.max_slots(), description.max_context_tokens(),
      description.num_pages(), description.kv_cache_bytes() >> 20, description.weight_bytes() >> 20,
      model->device(), description.numerics_id());
  const auto show_load = [&] {
    metrics.Refresh();
    const ModelShelf::Totals totals = models.Sum();
    server->ReportLoad(static_cast<uint32_t>(totals.num_open_slots),
                       static_cast<uint32_t>(totals.num_free_pages));
  };
  show_load();
  server->AfterEachCommand(show_load);
  models.OnDeviceLoss([&](const absl::Status& why) {
    server->RemoveFiles();
    LogFatal(options.log, absl::StrCat("the device's context is lost, and this process ends, to be "
                                       "started again: ",
                                       why.message()));
    std::_Exit(1);  // destructors would call the device
  });
  std::atomic<bool> stopping = false;
  std::unique_ptr<AdminServer> admin;
  if (places.admin.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(admin, AdminServer::Start(*places.admin, Routes(metrics, stopping),
                                                      AdminLimits(), security));
    spdlog::info("metrics: {}/metrics", admin->url());
  }
  stop_signal->Set(
      {.stop =
           [&] {
             stopping = true;
             if (options.drain_seconds > 0) {
               spdlog::info("told to stop: draining for at most {} s", options.drain_seconds);
               server->AwaitDrain();
             }
             server->Stop();
           },
       .patience = std::chrono::milliseconds(std::lround(options.drain_seconds * 1000)),
       .hurry = [&server] { server->HurryDrain(); },
       .before_exit = [&server] { server->RemoveFiles(); }});
  *ready = true;
  PrintReady(server->address());
  server->Run();
  models.Stop();        // a second signal still ends the process meanwhile
  stop_signal.reset();  // joins the thread that is inside Stop
  return absl::OkStatus();
}

// A supervisor shows the reason as its own error. Everybody else reads it in the log.
void End(const Options& options, const absl::Status& status, bool was_ready) {
  if (options.report_refusal && !was_ready) {
    PrintRefusal(status);
  } else {
    LogFatal(options.log, std::string(status.message()));
  }
}

}  // namespace

int RunWorker(int argc, char** argv, const WorkerProgram& program) {
  auto stop_signal = std::make_unique<StopSignal>();
  Options options;
  options.model.threads = DefaultThreads();
  options.model.may_cut_context = program.may_cut_context;
  options.model.load_on_gpu = program.load_on_gpu;
  options.model.judges = program.judges;
  // The supervisor calls the process "draft" or "verifier".
  options.log.process = program.judges ? "verifier" : "draft";
  FlagParser parser(program.judges ? Program::kVerifier : Program::kDraft, program.description);
  parser.SetVersion(TANDEM_VERSION);
  BindFlags(parser, program, options);
  if (const std::optional<int> exit_code = parser.ParseOrExitCode(argc, argv)) return *exit_code;
  options.model.guesses = options.guess_drafts == "on";
  SetUpLogs(options.log);
  RaiseDescriptorLimit();
  if (options.exit_with_parent && !FollowParent()) return 0;
  bool ready = false;
  absl::Status status;
  try {
    status = Serve(program, options, std::move(stop_signal), &ready);
  } catch (const std::exception& error) {
    status = Internal(error.what());
  }
  if (status.ok()) return 0;
  End(options, status, ready);
  return 1;
}

}  // namespace tandem
