// Writes down each request: a line of the log, and the metrics.
#ifndef TANDEM_SERVICES_GATEWAY_SERVER_ACCESS_LOG_H_
#define TANDEM_SERVICES_GATEWAY_SERVER_ACCESS_LOG_H_

#include <functional>
#include <string>

#include "common/metrics/metric_registry.h"
#include "services/gateway/http/http_service.h"

namespace tandem::gateway {

// Thread-safe.
class AccessLog {
 public:
  explicit AccessLog(const std::string& version);

  // Requests that succeed are written at level info, those of /health at level debug, and those
  // that fail at level info or, from status 500 on, at level warning.
  void Write(const AccessRecord& record);

  // The pages of the admin server. `num_connections` is asked at each scrape. This object must
  // outlive them.
  AdminRoutes Pages(std::function<int()> num_connections);

 private:
  MetricRegistry registry_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_SERVER_ACCESS_LOG_H_
