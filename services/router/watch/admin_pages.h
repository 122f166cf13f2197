// The pages of a router's admin port: metrics, readiness and the live page.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_ADMIN_PAGES_H_
#define TANDEM_SERVICES_ROUTER_WATCH_ADMIN_PAGES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/admin/admin_server.h"
#include "common/rpc/address.h"
#include "common/security/server_security.h"
#include "services/router/engine/engine_command.h"
#include "services/router/fleet/fleet.h"
#include "services/router/watch/live_history.h"
#include "services/router/watch/router_metrics.h"

namespace tandem {

// Gathers the figures on the router's thread. A thread of its own serves the pages. `now` is
// MonotonicSeconds everywhere.
class AdminPages {
 public:
  // The pages show `version` and `model`. RouterMetrics documents the other parameters.
  AdminPages(const std::string& version, const std::string& model, uint32_t max_draft_length,
             bool has_drafter);

  // Serves the pages at `address`. Errors are those of AdminServer::Start.
  absl::Status Start(const Address& address, const ServerSecurity& security);

  // HOST:PORT, with the port that was taken. Empty before Start.
  std::string address() const { return server_ == nullptr ? "" : server_->address(); }

  RouterMetrics& metrics() { return metrics_; }
  // Sets the answer of /readyz.
  void SetReady(bool ready) { ready_ = ready; }
  // Called after each event. Reads the fleet's state whenever the figures are due.
  void Refresh(const Fleet& fleet, double now);
  // Reads the fleet's state at once, so that whoever learns that the router serves sees its
  // workers.
  void RefreshNow(const Fleet& fleet, double now);
  // Shows a line of the log on the live page. The name of the line's pod is left out, because
  // viewers of the page must not learn the addresses of workers.
  void AddEvent(const LogLine& line, double now);

 private:
  RouterMetrics metrics_;
  LiveHistory live_;
  const double unix_offset_;  // Unix time at 0 of the monotonic clock, which never goes back
  double metrics_refreshed_at_ = 0;
  double live_sampled_at_ = 0;
  std::pair<uint32_t, double> live_attached_;  // ready pods, and the share of drafters attached
  std::atomic<bool> ready_ = false;
  std::unique_ptr<AdminServer> server_;  // the last member, because its thread reads the others
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_ADMIN_PAGES_H_
