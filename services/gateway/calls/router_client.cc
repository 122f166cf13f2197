#include "services/gateway/calls/router_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "services/gateway/calls/own_stream.h"
#include "services/gateway/calls/shared_call.h"

namespace tandem::gateway {
namespace {

// Less than the default of the router's --max-streams.
constexpr int kMaxStreamsOfChannel = 256;
constexpr size_t kMaxChannels = 64;
// The largest part of a stream that gRPC takes from the router before it is read: of one call, and
// of the calls that share a stream.
constexpr int kUnreadBytes = 64 << 10;
constexpr int kSharedUnreadBytes = 1 << 20;
constexpr std::chrono::seconds kInfoAge{5};
// A shared stream takes calls for so long. Then another one begins, on a new connection if the
// router ends old ones (its --max-connection-age).
constexpr std::chrono::minutes kSharedAge{5};
// The time from one try to open a shared stream to the next, and the time in which it should open.
constexpr std::chrono::seconds kSharedPause{1};
constexpr std::chrono::seconds kOpeningTime{10};

// Log-probabilities of a prompt come faster than a client may read them, and the router must wait.
// Only the messages of a stream of its own can wait.
bool MayShare(const v1::GenerateRequest& request) {
  return !request.sampling_params().has_prompt_logprobs();
}

}  // namespace

RouterClient::RouterClient(RouterAddress router, boost::asio::io_context& io)
    : router_(std::move(router)),
      unary_stub_(NewStub(kUnreadBytes)),
      shared_stub_(NewStub(kSharedUnreadBytes)),
      queue_(io) {}

std::unique_ptr<v1::Generation::Stub> RouterClient::NewStub(int unread_bytes) const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // never send a loopback address to a proxy
  arguments.SetMaxReceiveMessageSize(-1);
  // Channels to one address would otherwise share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A router whose machine is gone is noticed, and its calls end. The router allows such pings
  // every 5 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC would keep a copy of each call for retries, which only a policy of the service can want.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // gRPC would send a ping with almost every message to measure how much may be on its way.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, unread_bytes);
  // A router that was started again is found soon.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return v1::Generation::NewStub(
      grpc::CreateCustomChannel(router_.address, router_.credentials, arguments));
}

RouterClient::Channel* RouterClient::TakeChannel() {
  const std::lock_guard lock(mutex_);
  Channel* best = nullptr;
  // The first one with room, so that few connections carry the streams and each write of the
  // router carries messages of many streams.
  for (const auto& channel : channels_) {
    if (channel->num_streams < kMaxStreamsOfChannel) {
      best = channel.get();
      break;
    }
    if (best == nullptr || channel->num_streams < best->num_streams) best = channel.get();
  }
  const bool is_full = best == nullptr || best->num_streams >= kMaxStreamsOfChannel;
  if (is_full && channels_.size() < kMaxChannels) {
    channels_.push_back(std::make_unique<Channel>());
    best = channels_.back().get();
    best->stub = NewStub(kUnreadBytes);
  }
  ++best->num_streams;
  return best;
}

void RouterClient::GiveBack(Channel* channel) {
  const std::lock_guard lock(mutex_);
  --channel->num_streams;
}

void RouterClient::Prepare(grpc::ClientContext* context, const CallMetadata& metadata) const {
  const std::string& token = TokenOf(metadata);
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  if (!metadata.tenant.empty()) context->AddMetadata("tandem-tenant", metadata.tenant);
  if (!metadata.traceparent.empty()) context->AddMetadata("traceparent", metadata.traceparent);
}

std::shared_ptr<SharedStream> RouterClient::FindShared(const CallMetadata& metadata) {
  const SharedStream::Clock::time_point now = SharedStream::Clock::now();
  const std::lock_guard lock(mutex_);
  if (is_ending_) return nullptr;
  bool may_open = true;
  for (const auto& stream : shared_) {
    const auto age = now - stream->started_at();
    if (age >= kSharedAge) {
      stream->Retire();
    } else if (stream->takes_calls()) {
      return stream;
    } else if (age < kSharedPause || (stream->is_opening() && age < kOpeningTime)) {
      may_open = false;
    }
  }
  if (!may_open) return nullptr;
  std::erase_if(shared_, [](const auto& stream) { return stream->has_ended(); });
  const auto stream = shared_.emplace_back(std::make_shared<SharedStream>(&queue_));
  if (const std::string& token = TokenOf(metadata); !token.empty()) {
    stream->context()->AddMetadata("authorization", "Bearer " + token);
  }
  stream->Start(*shared_stub_);
  return nullptr;
}

std::shared_ptr<GenerateStream> RouterClient::Generate(const boost::asio::any_io_executor& strand,
                                                       v1::GenerateRequest request,
                                                       const CallMetadata& metadata, size_t choice,
                                                       std::shared_ptr<StreamListener> listener) {
  if (const auto shared = MayShare(request) ? FindShared(metadata) : nullptr) {
    v1::GenerateManyRequest message;
    message.mutable_generate()->Swap(&request);
    message.set_tenant(metadata.tenant);
    message.set_traceparent(metadata.traceparent);
    // Always given, because the stream shows the token of whoever made the first call.
    const std::string& token = TokenOf(metadata);
    message.set_authorization(token.empty() ? "" : "Bearer " + token);
    auto call = std::make_shared<SharedCall>(strand, choice, listener);
    if (shared->Begin(&message, call)) return call;
    request.Swap(
        message.mutable_generate());  // it has just ended or filled up, or the request is large
  }
  Channel* const channel = TakeChannel();
  auto stream = std::make_shared<OwnStream>(strand, choice, std::move(listener), &queue_,
                                            [this, channel] { GiveBack(channel); });
  Prepare(stream->context(), metadata);
  stream->Start(*channel->stub, request);
  return stream;
}

void RouterClient::Close() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    for (const auto& stream : shared_) stream->Close();
  }
  queue_.Close();
}

template <typename Request, typename Response>
RouterClient::Pending RouterClient::Call(const boost::asio::any_io_executor& strand,
                                         Request request, const CallMetadata& metadata,
                                         typename UnaryCall<Request, Response>::Method method,
                                         OnEnd<Response> on_end, std::chrono::seconds deadline) {
  const auto call =
      std::make_shared<UnaryCall<Request, Response>>(strand, std::move(request), &queue_);
  bool is_ending = false;
  {
    const std::lock_guard lock(mutex_);
    unary_calls_.insert(call.get());
    is_ending = is_ending_;
  }
  Prepare(call->context(), metadata);
  call->context()->set_deadline(std::chrono::system_clock::now() + deadline);
  call->Start(*unary_stub_, method,
              [this, itself = call.get(), on_end = std::move(on_end)](const CallEnd& end,
                                                                      const Response& response) {
                {
                  const std::lock_guard lock(mutex_);
                  unary_calls_.erase(itself);
                }
                on_end(end, response);
              });
  if (is_ending) call->Cancel();
  return call;
}

void RouterClient::CancelUnaryCalls() {
  const std::lock_guard lock(mutex_);
  is_ending_ = true;
  for (PendingCall* const call : unary_calls_) call->Cancel();
}

RouterClient::Pending RouterClient::Tokenize(const boost::asio::any_io_executor& strand,
                                             v1::TokenizeRequest request,
                                             const CallMetadata& metadata,
                                             OnEnd<v1::TokenizeResponse> on_end) {
  return Call<v1::TokenizeRequest, v1::TokenizeResponse>(
      strand, std::move(request), metadata, &v1::Generation::Stub::PrepareAsyncTokenize,
      std::move(on_end));
}

RouterClient::Pending RouterClient::Detokenize(const boost::asio::any_io_executor& strand,
                                               v1::DetokenizeRequest request,
                                               const CallMetadata& metadata,
                                               OnEnd<v1::DetokenizeResponse> on_end) {
  return Call<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      strand, std::move(request), metadata, &v1::Generation::Stub::PrepareAsyncDetokenize,
      std::move(on_end));
}

RouterClient::Pending RouterClient::AskInfo(const boost::asio::any_io_executor& strand,
                                            const CallMetadata& metadata,
                                            OnEnd<v1::ServerInfo> on_end,
                                            std::chrono::seconds deadline) {
  return Call<v1::GetServerInfoRequest, v1::ServerInfo>(
      strand, v1::GetServerInfoRequest(), metadata,
      &v1::Generation::Stub::PrepareAsyncGetServerInfo,
      [this, token = TokenOf(metadata), on_end = std::move(on_end)](const CallEnd& end,
                                                                    const v1::ServerInfo& info) {
        if (end.status.ok()) {
          const std::lock_guard lock(mutex_);
          info_ = info;
          info_token_ = token;
          info_at_ = std::chrono::steady_clock::now();
        }
        on_end(end, info);
      },
      deadline);
}

RouterClient::Pending RouterClient::Info(const boost::asio::any_io_executor& strand,
                                         const CallMetadata& metadata,
                                         OnEnd<v1::ServerInfo> on_end) {
  std::optional<v1::ServerInfo> known;
  {
    const std::lock_guard lock(mutex_);
    // The router may refuse another token.
    const bool is_for_it = info_token_ == TokenOf(metadata);
    if (is_for_it && std::chrono::steady_clock::now() - info_at_ < kInfoAge) known = info_;
  }
  if (!known.has_value()) return AskInfo(strand, metadata, std::move(on_end));
  on_end(CallEnd(), *known);
  return nullptr;
}

}  // namespace tandem::gateway
