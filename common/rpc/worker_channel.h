// gRPC settings of the streams between router and workers, the same at both ends.
#ifndef TANDEM_COMMON_RPC_WORKER_CHANNEL_H_
#define TANDEM_COMMON_RPC_WORKER_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "common/rpc/address.h"
#include "common/security/tls_files.h"

namespace tandem {

// How a router authenticates its workers over TCP and shows its own identity. Unix sockets are
// guarded by their folder and have no TLS.
struct WorkerTls {
  std::shared_ptr<TlsFiles> files = nullptr;  // null: plaintext
  std::string name = {};  // name in the workers' certificates; empty: the host of the address
};

// For the router: a channel that shares no connection with others and reconnects within a second.
std::shared_ptr<grpc::Channel> ConnectWorker(const Address& address, const WorkerTls& tls = {});

// For a worker: sets message sizes, flow control and limits, but neither port nor services.
void ConfigureWorkerServer(const Address& address, grpc::ServerBuilder& builder);

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_WORKER_CHANNEL_H_
