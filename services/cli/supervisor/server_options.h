// What `tandem serve` and the private server of other commands are told.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_OPTIONS_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_OPTIONS_H_

#include <string>

#include "common/flags/flag_parser.h"
#include "common/rpc/heartbeat.h"
#include "common/security/server_security.h"

namespace tandem::cli {

inline constexpr int kAdminPort = 9464;

// What is not set is left to the defaults of the processes themselves.
struct ServerOptions {
  std::string target;             // a model's folder; empty: the embedded pair
  std::string draft;              // empty: none, or the embedded one beside the embedded target
  std::string drafter = "model";  // "model" or "none"
  std::string models;             // folder that holds tales/; empty: found by itself
  std::string listen = "127.0.0.1:50051";
  // Where operators connect with HTTP: HOST:PORT of the router, the next two ports being the
  // verifier's and the drafter's; or "none"; or "auto": kAdminPort of this machine, or free ports
  // where one of those is taken.
  std::string admin = "none";
  // Flags that the table hands to the router and the workers, as they were given.
  FlagTexts handed_on;
  int drain_seconds = 30;
  int start_seconds = 600;
  double heartbeat_timeout_seconds = kHeartbeatTimeoutSeconds;  // 0: never
  ServerSecurityOptions security;
  bool insecure = false;
  std::string log_format = "text";  // or "json"
  bool verbose = false;             // a private server's log lines are shown
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_OPTIONS_H_
