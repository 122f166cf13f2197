#include "services/worker/server_setup.h"

#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "common/rpc/worker_channel.h"
#include "common/security/server_credentials.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<BoundServer> StartServer(const WorkerEndpoint& endpoint, grpc::Service& service,
                                        const char* service_name, grpc::ServerBuilder& builder) {
  const Address& address = endpoint.address;
  TANDEM_RETURN_IF_ERROR(PrepareSocketPath(address));
  grpc::EnableDefaultHealthCheckService(true);
  ConfigureWorkerServer(address, builder);
  int port = 0;
  builder.AddListeningPort(
      address.ToGrpc(),
      MakeServerCredentials(address.is_unix() ? nullptr : endpoint.tls, /*gate=*/nullptr), &port);
  builder.RegisterService(&service);
  BoundServer bound;
  bound.server = builder.BuildAndStart();
  if (bound.server == nullptr || port == 0) {
    return Unavailable("--listen " + address.ToGrpc() + ": cannot listen there");
  }
  TANDEM_RETURN_IF_ERROR(RestrictSocket(address));
  bound.server->GetHealthCheckService()->SetServingStatus(service_name, true);
  bound.address = address.ToString(port);
  return bound;
}

}  // namespace tandem
