// The WorkerHealth half of proto/tandem/v1/worker.proto.
#ifndef TANDEM_SERVICES_WORKER_SESSION_HEALTH_SERVICE_H_
#define TANDEM_SERVICES_WORKER_SESSION_HEALTH_SERVICE_H_

#include <functional>

#include "services/worker/session/session_leases.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

// gRPC's own threads serve this service, so it answers while the worker's one thread computes.
class HealthService final : public v1::WorkerHealth::CallbackService {
 public:
  using Report = std::function<v1::WatchPong()>;

  // `leases` must outlive the service. Any thread calls `report`, once for each ping.
  HealthService(SessionLeases* leases, Report report);

  grpc::ServerBidiReactor<v1::WatchPing, v1::WatchPong>* Watch(
      grpc::CallbackServerContext* context) override;

 private:
  SessionLeases* leases_;
  Report report_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_HEALTH_SERVICE_H_
