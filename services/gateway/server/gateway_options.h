// The gateway's options: flags and TANDEM_GATEWAY_* environment variables.
#ifndef TANDEM_SERVICES_GATEWAY_SERVER_GATEWAY_OPTIONS_H_
#define TANDEM_SERVICES_GATEWAY_SERVER_GATEWAY_OPTIONS_H_

#include <optional>
#include <string>

#include "common/log/log.h"
#include "common/security/server_security.h"
#include "services/gateway/limits/http_limits.h"

namespace tandem::gateway {

// The table of flags (common/flags) has the defaults.
struct GatewayOptions {
  std::string listen;
  std::string connect;  // the router's address
  std::string admin;    // "none": no admin server
  HttpLimits limits;
  double drain_seconds = 0;
  ServerSecurityOptions security;
  TlsPaths router_tls;  // plaintext without authorities
  std::string router_token_file;
  bool insecure = false;
  bool exit_with_parent = false;
  bool report_refusal = false;
  LogOptions log = {.process = "gateway"};
};

// Parses the command line. If it prints help or an error, returns the exit code of the process.
std::optional<int> ParseCommandLine(int argc, char** argv, GatewayOptions* options);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_SERVER_GATEWAY_OPTIONS_H_
