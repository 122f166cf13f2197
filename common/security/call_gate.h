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
#include "common/security/token_file.h"

namespace tandem {

// The gate denies everything that is not allowed: a method that is registered with the server and
// not named here cannot be called. Thread-safe.
class CallGate {
 public:
  // `methods` have the form "/package.Service/Method". If `tokens` is null, everybody who reaches
  // the server may call them.
  CallGate(std::vector<std::string> methods, std::shared_ptr<TokenFile> tokens);

  // `authorization` holds the values of that metadata key. There must be exactly one. OK lets the
  // call through. Otherwise the call ends with UNAUTHENTICATED (no token or an unknown token, for
  // any method) or with UNIMPLEMENTED.
  absl::Status Check(std::string_view method, std::span<const std::string_view> authorization);

 private:
  absl::Status CheckToken(std::span<const std::string_view> authorization);
  void LogRefusal();

  const std::set<std::string, std::less<>> methods_;
  const std::shared_ptr<TokenFile> tokens_;
  std::mutex mutex_;
  int64_t num_refused_ = 0;  // since the last line in the log
  std::chrono::steady_clock::time_point logged_at_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_CALL_GATE_H_
