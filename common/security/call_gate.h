// Decides about every call of a gRPC server before any handler sees it.
#ifndef TANDEM_COMMON_SECURITY_CALL_GATE_H_
#define TANDEM_COMMON_SECURITY_CALL_GATE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/token_file.h"

namespace tandem {

// The gate denies everything that is not allowed: a method that is registered with the server and
// not named here cannot be called. Thread-safe.
class CallGate {
 public:
  struct Methods {
    std::vector<std::string> of_clients;  // in the form "/package.Service/Method"
    std::vector<std::string> of_admins;
    // Whether everybody who reaches a server without tokens may call the methods of admins.
    bool admits_admins_without_tokens = false;
  };
  // If `tokens` is null, everybody who reaches the server may call the methods of clients.
  CallGate(Methods methods, std::shared_ptr<TokenFile> tokens);

  // `authorization` holds the values of that metadata key. There must be exactly one. OK lets the
  // call through. Otherwise the call ends with UNAUTHENTICATED (no token or an unknown token, for
  // any method), with PERMISSION_DENIED (a method of admins) or with UNIMPLEMENTED.
  absl::Status Check(std::string_view method, std::span<const std::string_view> authorization);

 private:
  absl::StatusOr<Role> RoleOf(std::span<const std::string_view> authorization);
  void LogRefusal();

  using MethodSet = std::set<std::string, std::less<>>;
  const MethodSet of_clients_;
  const MethodSet of_admins_;
  const bool admits_admins_without_tokens_;
  const std::shared_ptr<TokenFile> tokens_;
  std::mutex mutex_;
  int64_t num_refused_ = 0;  // since the last line in the log
  std::chrono::steady_clock::time_point logged_at_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_CALL_GATE_H_
