// The options of `tandem serve` and of the private server of other commands.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_OPTIONS_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_OPTIONS_H_

#include <string>

#include "common/flags/flag_parser.h"
#include "common/rpc/heartbeat.h"
#include "common/security/server_security.h"

namespace tandem::cli {

inline constexpr int kAdminPort = 9464;

// A field that is not set leaves the defaults of the processes in force.
struct ServerOptions {
  std::string target;  // a model's folder; empty: the embedded pair
  std::string draft;   // empty: the embedded drafter beside the embedded target, otherwise none
  bool draft_optional = false;    // a drafter that does not fit the target is no error
  std::string drafter = "model";  // "model" or "none"
  std::string self_drafter;       // drafter in the verifier that requests name; empty: none
  std::string models;             // folder that holds tales/; empty: found by itself
  std::string listen = "127.0.0.1:50051";
  // Where operators connect with HTTP. HOST:PORT is the router's address, and the next two ports
  // are the verifier's and the drafter's. "none": nowhere. "auto": kAdminPort on this machine, or
  // free ports if one of the three is taken.
  std::string admin = "none";
  // Where the gateway listens for clients of HTTP. "none": there is no gateway.
  std::string http = "none";
  // Texts of the flags that the table hands on to the router and the workers.
  FlagTexts handed_on;
  int drain_seconds = 30;
  int start_seconds = 600;
  double heartbeat_timeout_seconds = kHeartbeatTimeoutSeconds;  // 0: never
  ServerSecurityOptions security;
  bool insecure = false;
  std::string log_format = "text";  // "text" or "json"
  bool verbose = false;             // show the log lines of a private server
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_OPTIONS_H_
