// Binds a worker's gRPC server.
#ifndef TANDEM_SERVICES_WORKER_SESSION_SERVER_SETUP_H_
#define TANDEM_SERVICES_WORKER_SESSION_SERVER_SETUP_H_

#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "common/rpc/listener.h"
#include "common/security/tls_files.h"

namespace tandem {

// Where a worker listens, and with which security.
struct WorkerEndpoint {
  // An address alone means plaintext.
  WorkerEndpoint(Address at, std::shared_ptr<TlsFiles> with = nullptr, std::string name = "")
      : address(std::move(at)), tls(std::move(with)), client_name(std::move(name)) {}

  Address address;
  std::shared_ptr<TlsFiles> tls;  // null: plaintext. A Unix socket always speaks plaintext.
  // With mutual TLS: the name that a router's certificate must be for. Empty: any certificate that
  // the authorities signed will do.
  std::string client_name;
};

struct BoundServer {
  std::unique_ptr<Listener> listener;  // stops before the server does
  std::unique_ptr<grpc::Server> server;
  std::string address;  // with the real port
};

// Adds the port and the standard health service, and starts the server. Health is SERVING at once,
// for the whole server and for `service_name`. A Unix socket has mode 0600. Even if its mode is
// changed later, the socket serves only processes of the same user and of root.
absl::StatusOr<BoundServer> StartServer(const WorkerEndpoint& endpoint, grpc::Service& service,
                                        const char* service_name, grpc::ServerBuilder& builder);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_SERVER_SETUP_H_
