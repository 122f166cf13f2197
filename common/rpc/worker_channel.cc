#include "common/rpc/worker_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <string>
#include <utility>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/security/channel_credentials.h"

namespace tandem {
namespace {

constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kMaxStreams = 64;
constexpr int kHandshakeMilliseconds = 10000;

std::vector<std::pair<std::string, int>> CommonArguments(const Address& address) {
  std::vector<std::pair<std::string, int>> arguments = {
      {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
      // Windows hold a whole chunk, so that rows in the stream never wait for a window update.
      // Probing for larger windows is off, because its pings would travel with every message.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
  };
  if (!address.is_unix()) {
    // A Unix socket closes when its process ends. Between machines, silence must be detected with
    // pings. The two times together are below 5 s, within which a worker must free the slots of a
    // lost router.
    arguments.emplace_back(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
    arguments.emplace_back(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2500);
    arguments.emplace_back(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
    arguments.emplace_back(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.emplace_back(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  }
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> ConnectWorker(const Address& address, const WorkerTls& tls) {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : CommonArguments(address)) arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(kMaxWorkerMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxWorkerMessageBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  TlsFiles* files = address.is_unix() ? nullptr : tls.files.get();
  if (files != nullptr && !tls.name.empty()) arguments.SetSslTargetNameOverride(tls.name);
  return grpc::CreateCustomChannel(address.ToGrpc(), MakeChannelCredentials(files), arguments);
}

void ConfigureWorkerServer(const Address& address, grpc::ServerBuilder& builder) {
  for (const auto& [name, value] : CommonArguments(address))
    builder.AddChannelArgument(name, value);
  builder.SetMaxReceiveMessageSize(kMaxWorkerMessageBytes);
  builder.SetMaxSendMessageSize(kMaxWorkerMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
}

}  // namespace tandem
