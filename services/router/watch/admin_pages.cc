#include "services/router/watch/admin_pages.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/monotonic_seconds.h"
#include "common/status.h"
#include "services/router/watch/live_page.h"

namespace tandem {
namespace {

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the number in "since=12.5", and 0 for any other query.
double Since(const std::string& query) {
  constexpr std::string_view kName = "since=";
  double since = 0;
  if (query.starts_with(kName)) {
    std::from_chars(query.data() + kName.size(), query.data() + query.size(), since);
  }
  return std::isfinite(since) ? since : 0;
}

}  // namespace

AdminPages::AdminPages(const std::string& version, const std::string& model,
                       uint32_t max_draft_length, bool has_drafter)
    : metrics_(version, model, max_draft_length, has_drafter),
      live_(version, model, UnixTime()),
      unix_offset_(UnixTime() - MonotonicSeconds()) {}

absl::Status AdminPages::Start(const Address& address, const ServerSecurity& security) {
  AdminRoutes routes = MetricsRoutes(metrics_.registry());
  for (const LivePageFile& file : LivePage()) {
    routes[file.path] = [file](const std::string&) {
      return AdminResponse{.body = std::string(file.content), .content_type = file.content_type};
    };
  }
  routes["/live.json"] = [this](const std::string& query) {
    return AdminResponse{.body = live_.Json(Since(query)), .content_type = "application/json"};
  };
  routes["/readyz"] = [this](const std::string&) {
    return ready_ ? AdminResponse{.body = "ready\n"}
                  : AdminResponse{.body = "not ready\n", .status = 503};
  };
  TANDEM_ASSIGN_OR_RETURN(server_,
                          AdminServer::Start(address, std::move(routes), AdminLimits(), security));
  spdlog::info("metrics: {}/metrics", server_->url());
  spdlog::info("live page: {}/", server_->url());
  return absl::OkStatus();
}

void AdminPages::Refresh(const Fleet& fleet, double now) {
  if (now >= metrics_refreshed_at_ + RouterMetrics::kRefreshSeconds) RefreshNow(fleet, now);
}

void AdminPages::RefreshNow(const Fleet& fleet, double now) {
  metrics_refreshed_at_ = now;
  const FleetState state = fleet.State();
  metrics_.Refresh(state);
  const std::pair attached(state.num_pods_ready, state.attached_share());
  const bool due = now >= live_sampled_at_ + LiveHistory::kSampleSeconds;
  // A worker that came or went is shown without delay.
  if (!due && attached == live_attached_) return;
  live_sampled_at_ = now;
  live_attached_ = attached;
  LiveSample sample = metrics_.Sample(state);
  sample.time = unix_offset_ + now;
  live_.Add(std::move(sample));
}

void AdminPages::AddEvent(const LogLine& line, double now) {
  live_.AddEvent(unix_offset_ + now, line.level, line.summary.empty() ? line.text : line.summary);
}

}  // namespace tandem
