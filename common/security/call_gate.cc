#include "common/security/call_gate.h"

#include <spdlog/spdlog.h>

#include <iterator>
#include <utility>

#include "common/security/authorization.h"
#include "common/status.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kRefusalLogPause{1};  // time between two log lines

}  // namespace

CallGate::CallGate(Methods methods, std::shared_ptr<TokenFile> tokens)
    : of_clients_(std::make_move_iterator(methods.of_clients.begin()),
                  std::make_move_iterator(methods.of_clients.end())),
      of_admins_(std::make_move_iterator(methods.of_admins.begin()),
                 std::make_move_iterator(methods.of_admins.end())),
      admits_admins_without_tokens_(methods.admits_admins_without_tokens),
      tokens_(std::move(tokens)) {}

absl::Status CallGate::Check(std::string_view method,
                             std::span<const std::string_view> authorization) {
  // The token is checked first, so that callers without a token do not learn which methods exist.
  TANDEM_ASSIGN_OR_RETURN(const Role role, RoleOf(authorization));
  if (of_clients_.find(method) != of_clients_.end()) return absl::OkStatus();
  if (of_admins_.find(method) == of_admins_.end()) {
    return absl::UnimplementedError("this server has no such method");
  }
  if (role == Role::kAdmin) return absl::OkStatus();
  return absl::PermissionDeniedError(
      tokens_ == nullptr ? "this method is for admins: the server needs a --token-file with an "
                           "admin's token, or a loopback address"
                         : "this method needs the token of an admin");
}

absl::StatusOr<Role> CallGate::RoleOf(std::span<const std::string_view> authorization) {
  if (tokens_ == nullptr) return admits_admins_without_tokens_ ? Role::kAdmin : Role::kClient;
  if (authorization.size() == 1) {
    const std::string token = BearerToken(authorization.front());
    const Role role = token.empty() ? Role::kNone : tokens_->RoleOf(token);
    if (role >= Role::kClient) return role;
  }
  LogRefusal();
  return absl::UnauthenticatedError(
      authorization.empty() ? "a token is needed: metadata `authorization: Bearer TOKEN`"
                            : "metadata `authorization`: want `Bearer TOKEN` with a token of this "
                              "server");
}

void CallGate::LogRefusal() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++num_refused_;
  const auto now = std::chrono::steady_clock::now();
  if (now - logged_at_ < kRefusalLogPause) return;
  spdlog::warn("calls without a valid token: {} refused", num_refused_);
  num_refused_ = 0;
  logged_at_ = now;
}

}  // namespace tandem
