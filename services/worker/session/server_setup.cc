#include "services/worker/session/server_setup.h"

#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <string_view>
#include <utility>

#include "common/rpc/worker_channel.h"
#include "common/security/call_interceptor.h"
#include "common/security/server_credentials.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<BoundServer> StartServer(const WorkerEndpoint& endpoint, grpc::Service& service,
                                        const char* service_name, grpc::ServerBuilder& builder) {
  const Address& address = endpoint.address;
  const std::shared_ptr<TlsFiles> tls = address.is_unix() ? nullptr : endpoint.tls;
  grpc::EnableDefaultHealthCheckService(true);
  ConfigureWorkerServer(address, builder);
  if (tls != nullptr && !endpoint.client_name.empty()) {
    InterceptCalls(builder, [name = endpoint.client_name](std::string_view, auto& context) {
      absl::Status status = CheckClientName(name, context);
      if (!status.ok()) {
        spdlog::warn("a router was refused: {}", std::string(status.message()));
      }
      return status;
    });
  }
  BoundServer bound;
  // Anyone who can connect commands the worker.
  TANDEM_ASSIGN_OR_RETURN(bound.listener, Listener::Bind(address, UnixPeers::kOwnUser));
  bound.listener->AddTo(builder, MakeServerCredentials(tls));
  builder.RegisterService(&service);
  bound.server = builder.BuildAndStart();
  if (bound.server == nullptr) return Internal("the gRPC server cannot be started");
  bound.listener->Start();
  bound.server->GetHealthCheckService()->SetServingStatus(service_name, true);
  bound.address = address.ToString(bound.listener->port());
  return bound;
}

}  // namespace tandem
