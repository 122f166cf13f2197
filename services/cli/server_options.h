// What `tandem serve` and the private server of other commands are told.
#ifndef TANDEM_SERVICES_CLI_SERVER_OPTIONS_H_
#define TANDEM_SERVICES_CLI_SERVER_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

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
  std::string draft_length;  // a number, or "auto": the server chooses for each round
  std::optional<int> threads;
  std::optional<int> max_slots;
  std::optional<int> max_context;
  std::optional<uint64_t> kv_cache_bytes;  // of the target
  std::optional<uint64_t> draft_kv_cache_bytes;
  std::string backend;  // "cpu", "cuda" or "auto"
  std::optional<int> gpu;
  std::optional<uint64_t> gpu_memory_bytes;  // of the target's worker
  std::optional<uint64_t> draft_gpu_memory_bytes;
  std::optional<int> max_queue;
  std::map<std::string, std::string> router_flags;  // handed on as they are
  std::string transport;       // of the log-prob ring: "auto", "shm" or "inline"
  std::string audit_fraction;  // a number in [0, 1]
  bool audit_fails_readiness = false;
  int drain_seconds = 30;
  int start_seconds = 600;
  std::optional<double> heartbeat_timeout;  // seconds; 0: never
  ServerSecurityOptions security;
  bool insecure = false;
  std::string log_format = "text";  // or "json"
  bool log_prompts = false;
  bool verbose = false;  // a private server's log lines are shown
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SERVER_OPTIONS_H_
