// The router's options: flags and TANDEM_* environment variables.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_ROUTER_OPTIONS_H_
#define TANDEM_SERVICES_ROUTER_SERVER_ROUTER_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/security/server_security.h"
#include "services/router/engine/engine_options.h"
#include "services/router/request/request_validator.h"

namespace tandem {

// The table of flags (common/flags) has the defaults.
struct RouterOptions {
  std::string target_folder;
  std::string verifier_address;
  std::string drafter_address;  // "none": decode plainly
  double discover_seconds = 0;  // time from one lookup of worker pods to the next
  std::string listen_address;
  std::string admin_address;
  std::string model_name;             // empty: name of the target's folder
  std::string chat_template;          // a file; empty: the template in the target's folder
  std::string tool_call_format;       // see tool_call_format.h; "auto" or "none"
  std::vector<std::string> drafters;  // names, or "none" alone
  std::string retrieval;              // file of the retrieval index; empty: none
  std::string transport;              // "auto", "cuda_ipc", "shm" or "inline"
  std::string draft_length;           // a number, or "auto"
  bool audit_fails_readiness = false;
  EngineOptions engine;
  RequestLimits limits;
  double drain_seconds = 0;
  bool drafter_required_at_start = false;
  double drafter_wait_seconds = 0;  // longest time for which the line `ready` waits for a drafter
  int max_message_bytes = 0;
  int max_streams = 0;       // largest number of concurrent calls of one connection
  int max_stream_calls = 0;  // largest number of concurrent calls of one stream of GenerateMany
  // Largest part of a stream that waits for its client to read. With gRPC's own buffers and all
  // other state, a stream takes less than 256 KiB at the default.
  int stream_buffer_bytes = 0;
  int stream_padding_bytes = 0;           // message sizes are multiples of this number; 0: any size
  double max_connection_age_seconds = 0;  // 0: no limit
  ServerSecurityOptions security;
  TlsPaths worker_tls;      // files for TLS to workers over TCP
  std::string worker_name;  // name in the workers' certificates; empty: host of the address
  bool insecure = false;
  bool exit_with_parent = false;
  bool report_refusal = false;
  LogOptions log = {.process = "router"};
  bool log_prompts = false;
};

// Parses the command line. If it prints help or an error, returns the exit code of the process.
std::optional<int> ParseCommandLine(int argc, char** argv, RouterOptions* options);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_ROUTER_OPTIONS_H_
