#include "services/worker/session/session_leases.h"

#include <algorithm>

#include "common/log/log.h"

namespace tandem {

void SessionLeases::Open(uint64_t token) {
  if (token == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++leases_[token].sessions;
}

void SessionLeases::Close(uint64_t token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto lease = leases_.find(token);
  if (lease != leases_.end() && --lease->second.sessions == 0) leases_.erase(lease);
}

void SessionLeases::Renew(uint64_t token, Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto lease = leases_.find(token);
  if (lease != leases_.end()) lease->second.pinged_at = now;
}

std::vector<uint64_t> SessionLeases::TakeExpired(Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint64_t> expired;
  std::erase_if(leases_, [&](const auto& entry) {
    const auto& [token, lease] = entry;
    if (!lease.pinged_at.has_value() || now - *lease.pinged_at < length_) return false;
    expired.push_back(token);
    return true;
  });
  for (const uint64_t token : expired) {
    LogWith(spdlog::level::warn, LogFields().Add("session", token),
            "a router sent no ping for the length of its lease, so its session ends");
  }
  return expired;
}

std::optional<SessionLeases::Clock::time_point> SessionLeases::NextLook(
    Clock::time_point now) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (leases_.empty()) return std::nullopt;
  Clock::time_point next = now + length_;
  for (const auto& [token, lease] : leases_) {
    if (lease.pinged_at.has_value()) next = std::min(next, *lease.pinged_at + length_);
  }
  return next;
}

}  // namespace tandem
