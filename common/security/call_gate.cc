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

CallGate::CallGate(std::vector<std::string> methods, std::shared_ptr<TokenFile> tokens)
    : methods_(std::make_move_iterator(methods.begin()), std::make_move_iterator(methods.end())),
      tokens_(std::move(tokens)) {}

absl::Status CallGate::Check(std::string_view method,
                             std::span<const std::string_view> authorization) {
  // The token is checked first, so that callers without a token do not learn which methods exist.
  TANDEM_RETURN_IF_ERROR(CheckToken(authorization));
  if (methods_.find(method) == methods_.end()) {
    return absl::UnimplementedError("this server has no such method");
  }
  return absl::OkStatus();
}

absl::Status CallGate::CheckToken(std::span<const std::string_view> authorization) {
  if (tokens_ == nullptr) return absl::OkStatus();
  if (authorization.size() == 1) {
    const std::string token = BearerToken(authorization.front());
    if (!token.empty() && tokens_->RoleOf(token) >= Role::kClient) return absl::OkStatus();
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
