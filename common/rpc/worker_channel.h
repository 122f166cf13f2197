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

// How a router knows its workers over TCP, and shows who it is. Unix sockets are guarded by their
// folder, and know no TLS.
struct WorkerTls {
  std::shared_ptr<TlsFiles> files = nullptr;  // null: plaintext
  std::string name = {};  // that the workers' certificates must have; empty: host of the address
};

// Router: a channel of its own (no sharing of connections), that reconnects within a second.
std::shared_ptr<grpc::Channel> ConnectWorker(const Address& address, const WorkerTls& tls = {});

// Worker: message sizes, flow control and limits. Neither port nor services.
void ConfigureWorkerServer(const Address& address, grpc::ServerBuilder& builder);

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_WORKER_CHANNEL_H_
