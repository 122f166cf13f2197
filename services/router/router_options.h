// What a person can set about the router: flags and TANDEM_* environment variables.
#ifndef TANDEM_SERVICES_ROUTER_ROUTER_OPTIONS_H_
#define TANDEM_SERVICES_ROUTER_ROUTER_OPTIONS_H_

#include <optional>
#include <string>

#include "common/log/log.h"
#include "common/security/server_security.h"
#include "services/router/engine.h"
#include "services/router/request_validator.h"

namespace tandem {

struct RouterOptions {
  std::string target_folder;
  std::string verifier_address;
  std::string drafter_address = "none";
  double discover_seconds = 5;  // from one look for worker pods to the next
  std::string listen_address = "127.0.0.1:50051";
  std::string admin_address = "none";
  std::string model_name;  // empty: name of the target's folder
  std::string transport = "auto";
  std::string draft_length = "auto";
  bool audit_fails_readiness = false;
  EngineOptions engine;
  RequestLimits limits;
  double drain_seconds = 10;
  double drafter_wait_seconds = 5;  // how long `ready` waits for a drafter
  int max_message_bytes = 4 << 20;
  int max_streams = 512;  // of one connection, at once
  // Of a stream, waiting for its client to read. With gRPC's own buffers, and all else that is kept
  // of a stream, under 256 KiB.
  int stream_buffer_bytes = 160 << 10;
  int stream_padding_bytes = 0;  // messages of a stream are multiples of it; 0: as they come
  double max_connection_age_seconds = 0;  // 0: no limit
  ServerSecurityOptions security;
  TlsPaths worker_tls;      // to workers over TCP
  std::string worker_name;  // that their certificates must have; empty: host of the address
  bool insecure = false;
  bool exit_with_parent = false;
  LogOptions log = {.process = "router"};
  bool log_prompts = false;
};

// Parses the command line; prints help or what is wrong. Otherwise the exit code to end with.
std::optional<int> ParseCommandLine(int argc, char** argv, RouterOptions* options);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ROUTER_OPTIONS_H_
