// gRPC settings of the streams between router and workers, the same at both ends.
#ifndef TANDEM_COMMON_RPC_WORKER_CHANNEL_H_
#define TANDEM_COMMON_RPC_WORKER_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>

#include <memory>

#include "common/rpc/address.h"

namespace tandem {

// Router: a channel of its own (no sharing of connections), that reconnects within a second.
std::shared_ptr<grpc::Channel> ConnectWorker(const Address& address);

// Worker: message sizes, flow control and limits. Neither port nor services.
void ConfigureWorkerServer(const Address& address, grpc::ServerBuilder& builder);

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_WORKER_CHANNEL_H_
