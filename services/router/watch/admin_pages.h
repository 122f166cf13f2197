// What a router shows on its admin port: metrics, readiness and the live page.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_ADMIN_PAGES_H_
#define TANDEM_SERVICES_ROUTER_WATCH_ADMIN_PAGES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/admin/admin_server.h"
#include "common/rpc/address.h"
#include "common/security/server_security.h"
#include "services/router/engine/engine_command.h"
#include "services/router/fleet/fleet.h"
#include "services/router/watch/live_history.h"
#include "services/router/watch/router_metrics.h"

namespace tandem {

// Gathers the figures on the router's thread, and shows them by a thread of its own. `now` is
// MonotonicSeconds everywhere.
class AdminPages {
 public:
  // `version` and `model` are shown; the rest is RouterMetrics'.
  AdminPages(const std::string& version, const std::string& model, uint32_t max_draft_length,
             bool has_drafter);

  // Shows the pages at `address`. Errors are those of AdminServer::Start.
  absl::Status Start(const Address& address, const ServerSecurity& security);

  RouterMetrics& metrics() { return metrics_; }
  // What /readyz answers.
  void SetReady(bool ready) { ready_ = ready; }
  // To be called often: reads the fleet's state whenever the figures are due.
  void Refresh(const Fleet& fleet, double now);
  // Shows a line of the log on the live page, without the pod that it is about: whoever sees the
  // page is to learn no worker's address.
  void AddEvent(const LogLine& line, double now);

 private:
  RouterMetrics metrics_;
  LiveHistory live_;
  const double unix_offset_;  // Unix time at 0 of the monotonic clock: it never goes back
  double metrics_refreshed_at_ = 0;
  double live_sampled_at_ = 0;
  std::atomic<bool> ready_ = false;
  std::unique_ptr<AdminServer> server_;  // last: its thread reads the others
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_ADMIN_PAGES_H_
