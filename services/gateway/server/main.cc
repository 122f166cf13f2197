// tandem-gateway: see --help.
#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include "common/log/log.h"
#include "common/rpc/listener.h"
#include "common/start_line.h"
#include "services/gateway/server/gateway_options.h"
#include "services/gateway/server/gateway_server.h"

namespace tandem::gateway {
namespace {

int Main(int argc, char** argv) {
  GatewayOptions options;
  if (const std::optional<int> exit_code = ParseCommandLine(argc, argv, &options)) {
    return *exit_code;
  }
  SetUpLog(options.log);
  // Without this, gRPC writes a line of its own for each connection that fails.
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("grpc: {}", args->message); });
  RaiseDescriptorLimit();
  if (options.exit_with_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) return EXIT_SUCCESS;  // the parent died before prctl
  }
  bool listening = false;
  const absl::Status status = RunGateway(options, [&listening](const std::string& address) {
    listening = true;
    PrintStartLine(kHttpPrefix, address);
  });
  if (status.ok()) return EXIT_SUCCESS;
  if (options.report_refusal && !listening) {
    PrintRefusal(status);  // a supervisor shows the reason as its own error
  } else {
    LogFatal(options.log, std::string(status.message()));
  }
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace tandem::gateway

int main(int argc, char** argv) {
  try {
    return tandem::gateway::Main(argc, argv);
  } catch (const std::exception& error) {  // thrown by a library: our code throws nothing
    std::fprintf(stderr, "tandem-gateway: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
