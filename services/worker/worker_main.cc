#include "services/worker/worker_main.h"

#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/metrics/admin_server.h"
#include "common/rpc/listener.h"
#include "common/security/server_security.h"
#include "common/status.h"
#include "kernels/cpu.h"
#include "services/worker/stop_signal.h"
#include "services/worker/worker_metrics.h"

namespace tandem {
namespace {

struct Options {
  WorkerModelOptions model;
  std::string listen;
  std::string admin = "none";
  std::filesystem::path ring_dir;
  LogOptions log;
  ServerSecurityOptions security;
  std::string client_name;
  bool insecure = false;
  double drain_seconds = 0;
  bool exit_with_parent = false;
};

// tandem-draft --max-slots -> TANDEM_DRAFT_MAX_SLOTS
std::string EnvironmentName(const std::string& program, const std::string& option) {
  std::string name = program + "_" + option;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

void AddOptions(CLI::App& app, const WorkerProgram& program, Options& options) {
  const auto env = [&](const std::string& option) { return EnvironmentName(program.name, option); };
  app.add_option("--model", options.model.folder,
                 "Folder of the model: config.json, model.safetensors, tokenizer.json")
      ->required()
      ->type_name("DIR")
      ->envname(env("model"));
  app.add_option("--model-name", options.model.name, "What routers call it; default: the folder's")
      ->type_name("NAME")
      ->envname(env("model-name"));
  app.add_option(
         "--listen", options.listen,
         "Where the router connects; port 0 picks a free one, and the line 'ready: ADDRESS'\n"
         "on standard output says which")
      ->required()
      ->type_name("unix:PATH|HOST:PORT")
      ->envname(env("listen"));
  app.add_option("--admin", options.admin,
                 "Where operators connect with HTTP, for metrics and health; port 0 picks a free "
                 "one")
      ->capture_default_str()
      ->type_name("HOST:PORT|none")
      ->envname(env("admin"));
  app.add_option("--threads", options.model.threads, "Threads that compute")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->envname(env("threads"));
  app.add_option("--max-slots", options.model.max_slots,
                 "Sequences held at once, of all routers together")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->envname(env("max-slots"));
  app.add_option("--max-context", options.model.max_context,
                 "Tokens of a sequence at most; 0: what the model can and the KV cache holds")
      ->capture_default_str()
      ->envname(env("max-context"));
  app.add_option(
         "--kv-cache-bytes", options.model.kv_cache_bytes,
         "Keys and values of all sequences and of the prefix cache; K, M and G are 1024-fold.\n"
         "0: a quarter of the memory, or what all slots can fill. Touched only as tokens come")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("BYTES")
      ->envname(env("kv-cache-bytes"));
  app.add_option("--backend", options.model.backend,
                 "What computes: cpu, cuda (an NVIDIA GPU), or auto: cuda where it can be had")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->envname(env("backend"));
  app.add_option("--gpu", options.model.gpu, "Which GPU, as the driver counts them")
      ->capture_default_str()
      ->check(CLI::Range(0, 1023))
      ->envname(env("gpu"));
  app.add_option("--gpu-memory-bytes", options.model.gpu_memory_bytes,
                 "Device memory for weights, scratch and KV cache together, taken at start.\n"
                 "0: what these and --kv-cache-bytes take, or two fifths of the GPU's")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("BYTES")
      ->envname(env("gpu-memory-bytes"));
  if (program.judges) {
    app.add_option("--ring-dir", options.ring_dir,
                   "Folder (mode 0700) of the socket that hands the log-prob ring to the drafter;\n"
                   "default: a new one under $XDG_RUNTIME_DIR or the temporary folder")
        ->type_name("DIR")
        ->envname(env("ring-dir"));
  }
  app.add_option("--log-level", options.log.level, "Of the messages on standard error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->envname(env("log-level"));
  app.add_option("--log-format", options.log.format, "text, or json: one object a line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->envname(env("log-format"));
  app.add_option(
         "--tls-certificate", options.security.tls.certificate,
         "PEM: speak TLS over TCP (not on a Unix socket), and HTTPS on --admin. Read again\n"
         "when it changes, as the other files are")
      ->type_name("FILE")
      ->envname(env("tls-certificate"));
  app.add_option("--tls-key", options.security.tls.key, "PEM: key of the certificate")
      ->type_name("FILE")
      ->envname(env("tls-key"));
  app.add_option("--tls-client-ca", options.security.tls.authorities,
                 "PEM: routers must show a certificate that one of these signed")
      ->type_name("FILE")
      ->envname(env("tls-client-ca"));
  app.add_option("--client-name", options.client_name,
                 "DNS name that a router's certificate must be for, of those that --tls-client-ca\n"
                 "signed; empty: any of them commands this worker")
      ->type_name("NAME")
      ->envname(env("client-name"));
  app.add_option("--token-file", options.security.token_file,
                 "Lines `admin TOKEN`: who asks --admin for more than its health shows one")
      ->type_name("FILE")
      ->envname(env("token-file"));
  app.add_flag("--insecure", options.insecure,
               "Listen on addresses that other machines reach, without mutual TLS or tokens")
      ->envname(env("insecure"));
  app.add_option(
         "--drain-seconds", options.drain_seconds,
         "After SIGTERM: how long streams may run on while routers bring new ones elsewhere;\n"
         "a second signal ends that. 0: streams move at once, to who can rebuild them")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0))
      ->envname(env("drain-seconds"));
  app.add_flag("--exit-with-parent", options.exit_with_parent,
               "End when the process that started this one ends");
}

void SetUpLogs(const LogOptions& options) {
  SetUpLog(options);
  // gRPC's own lines repeat, with less context, what a status says.
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("grpc: {}", args->message); });
}

// False when the parent is gone already.
bool FollowParent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  return getppid() == parent;
}

// A worker that listens is ready, until it is told to stop.
AdminRoutes Routes(const WorkerMetrics& metrics, const std::atomic<bool>& stopping) {
  AdminRoutes routes = MetricsRoutes(metrics.registry());
  routes["/readyz"] = [healthy = routes["/healthz"], &stopping](const std::string& query) {
    return stopping ? AdminResponse{.body = "draining\n", .status = 503} : healthy(query);
  };
  return routes;
}

absl::Status Serve(const WorkerProgram& program, const Options& options,
                   std::unique_ptr<StopSignal> stop_signal) {
  TANDEM_ASSIGN_OR_RETURN(const Address address, Address::Parse(options.listen));
  TANDEM_ASSIGN_OR_RETURN(const ServerSecurity security, ServerSecurity::Open(options.security));
  if (!options.client_name.empty() && !security.mutual_tls()) {
    return InvalidArgument(
        "--client-name is about certificates of routers: give --tls-certificate, --tls-key and "
        "--tls-client-ca too");
  }
  TANDEM_RETURN_IF_ERROR(CheckBindIsLocal(
      address, options.insecure || security.mutual_tls(), "--listen",
      "mutual TLS (--tls-certificate, --tls-key and --tls-client-ca), for whoever connects "
      "commands this worker"));
  std::optional<Address> admin_address;
  if (options.admin != "none") {
    TANDEM_ASSIGN_OR_RETURN(admin_address, Address::Parse(options.admin));
    TANDEM_RETURN_IF_ERROR(CheckBindIsLocal(
        *admin_address, options.insecure || security.tokens != nullptr, "--admin", "--token-file"));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerModel> model,
                          WorkerModel::Load(options.model));
  if (!model->why_not_cuda().empty()) spdlog::info("CUDA is not used: {}", model->why_not_cuda());
  // Outlives the server, which refreshes it until its last session is closed.
  WorkerMetrics metrics(program.judges ? WorkerMetrics::kVerifier : WorkerMetrics::kDrafter,
                        TANDEM_VERSION, model.get());
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerServer> server,
      program.start({address, security.tls, options.client_name}, *model, options.ring_dir));
  const v1::AttachReply description = model->Describe();
  spdlog::info(
      "{}: {} slots of up to {} tokens, KV cache of {} pages, {} MiB, weights {} MiB, on {} ({})",
      description.model(), description.max_slots(), description.max_context_tokens(),
      description.num_pages(), description.kv_cache_bytes() >> 20, description.weight_bytes() >> 20,
      model->device(), description.numerics_id());
  const auto show_load = [&] {
    metrics.Refresh();
    const CachePool& caches = model->caches();
    server->ReportLoad(static_cast<uint32_t>(caches.size() - caches.num_free()),
                       static_cast<uint32_t>(caches.pages().num_free()));
  };
  show_load();
  server->AfterEachCommand(show_load);
  model->OnDeviceLoss([&](const absl::Status& why) {
    server->RemoveFiles();
    LogFatal(options.log, absl::StrCat("the device's context is lost, and this process ends, to be "
                                       "started again: ",
                                       why.message()));
    std::_Exit(1);  // destructors would call the device
  });
  std::atomic<bool> stopping = false;
  std::unique_ptr<AdminServer> admin;
  if (admin_address.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(admin, AdminServer::Start(*admin_address, Routes(metrics, stopping),
                                                      AdminLimits(), security));
    spdlog::info("metrics: {}/metrics", admin->url());
  }
  stop_signal->Set(
      {.stop =
           [&] {
             stopping = true;
             if (options.drain_seconds > 0) {
               spdlog::info("told to stop: draining, for {} s at most", options.drain_seconds);
               server->AwaitDrain();
             }
             server->Stop();
           },
       .patience = std::chrono::milliseconds(std::lround(options.drain_seconds * 1000)),
       .hurry = [&server] { server->HurryDrain(); },
       .before_exit = [&server] { server->RemoveFiles(); }});
  std::printf("ready: %s\n", server->address().c_str());
  std::fflush(stdout);
  server->Run();
  stop_signal.reset();  // joins the thread that is inside Stop
  return absl::OkStatus();
}

}  // namespace

int RunWorker(int argc, char** argv, const WorkerProgram& program) {
  auto stop_signal = std::make_unique<StopSignal>();
  Options options;
  options.model.threads = DefaultThreads();
  options.model.may_cut_context = program.may_cut_context;
  options.model.load_on_gpu = program.load_on_gpu;
  options.model.judges = program.judges;
  // "draft" of tandem-draft, as the supervisor calls it.
  options.log.process = program.name.substr(program.name.find('-') + 1);
  CLI::App app(program.description, program.name);
  app.set_version_flag("--version", TANDEM_VERSION);
  AddOptions(app, program, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  SetUpLogs(options.log);
  RaiseDescriptorLimit();
  if (options.exit_with_parent && !FollowParent()) return 0;
  absl::Status status;
  try {
    status = Serve(program, options, std::move(stop_signal));
  } catch (const std::exception& error) {
    status = Internal(error.what());
  }
  if (status.ok()) return 0;
  LogFatal(options.log, std::string(status.message()));
  return 1;
}

}  // namespace tandem
