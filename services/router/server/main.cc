// tandem-router: see --help.
#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/rpc/listener.h"
#include "common/start_line.h"
#include "common/status.h"
#include "services/router/server/router_options.h"
#include "services/router/server/router_server.h"
#include "services/router/server/signal_watcher.h"
#include "services/router/server/target_folder.h"

namespace tandem {
namespace {

absl::Status Serve(const RouterOptions& options, bool* ready) {
  const SignalMask signals;
  if (options.exit_with_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) return absl::OkStatus();  // the parent died before prctl
  }
  TANDEM_ASSIGN_OR_RETURN(TargetFolder target, TargetFolder::Load(options.target_folder));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<RouterServer> server,
                          RouterServer::Start(options, std::move(target)));
  return server->Run([ready](const std::string& address) {
    *ready = true;
    PrintReady(address);
  });
}

int Main(int argc, char** argv) {
  RouterOptions options;
  if (const std::optional<int> exit_code = ParseCommandLine(argc, argv, &options)) {
    return *exit_code;
  }
  SetUpLog(options.log);
  // Without this, gRPC writes a line of its own for each handshake that fails.
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("grpc: {}", args->message); });
  RaiseDescriptorLimit();
  bool ready = false;
  const absl::Status status = Serve(options, &ready);
  if (status.ok()) return EXIT_SUCCESS;
  if (options.report_refusal && !ready) {
    PrintRefusal(status);  // a supervisor shows the reason as its own error
  } else {
    LogFatal(options.log, std::string(status.message()));
  }
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    return tandem::Main(argc, argv);
  } catch (const std::exception& error) {  // thrown by a library: our code throws nothing
    std::fprintf(stderr, "tandem-router: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
