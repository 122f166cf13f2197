// The gateway's side of the router's API.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CLIENT_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CLIENT_H_

#include <grpcpp/security/credentials.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/gateway/calls/call_queue.h"
#include "services/gateway/calls/generate_stream.h"
#include "services/gateway/calls/router_call.h"
#include "services/gateway/calls/shared_stream.h"
#include "services/gateway/calls/unary_call.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

struct RouterAddress {
  std::string address;  // "HOST:PORT" or "unix:PATH"
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string token;  // shown with every call; empty: none
};

// Thread-safe. A router takes a limited number of calls over one connection (its --max-streams), so
// the client opens another connection when all that it has are busy. Calls share a stream once the
// router has taken it. Before that, and if the router knows no such streams, each call has a stream
// of its own.
class RouterClient {
 public:
  // One more thread than without the client must run `io`, which is at work until Close.
  RouterClient(RouterAddress router, boost::asio::io_context& io);
  RouterClient(const RouterClient&) = delete;
  RouterClient& operator=(const RouterClient&) = delete;

  std::shared_ptr<GenerateStream> Generate(const boost::asio::any_io_executor& strand,
                                           v1::GenerateRequest request,
                                           const CallMetadata& metadata, size_t choice,
                                           std::shared_ptr<StreamListener> listener);

  // Unary calls have a deadline. They return the call, so that it can be given up.
  using Pending = std::shared_ptr<PendingCall>;
  template <typename Response>
  using OnEnd = std::function<void(const CallEnd& end, const Response& response)>;
  Pending Tokenize(const boost::asio::any_io_executor& strand, v1::TokenizeRequest request,
                   const CallMetadata& metadata, OnEnd<v1::TokenizeResponse> on_end);
  Pending Detokenize(const boost::asio::any_io_executor& strand, v1::DetokenizeRequest request,
                     const CallMetadata& metadata, OnEnd<v1::DetokenizeResponse> on_end);
  // Asks the router.
  Pending AskInfo(const boost::asio::any_io_executor& strand, const CallMetadata& metadata,
                  OnEnd<v1::ServerInfo> on_end, std::chrono::seconds deadline = kUnaryDeadline);
  // Gives an answer of the last seconds at once, if the router gave one to the same token, and
  // returns null. Otherwise asks the router.
  Pending Info(const boost::asio::any_io_executor& strand, const CallMetadata& metadata,
               OnEnd<v1::ServerInfo> on_end);

  // This process ends: unary calls end soon, those that come later too.
  void CancelUnaryCalls();
  // The shared streams end, and when every call has ended, the client leaves the io_context.
  // PRECOND: no call begins any more.
  void Close();

  static constexpr std::chrono::seconds kUnaryDeadline{30};

 private:
  struct Channel {
    std::unique_ptr<v1::Generation::Stub> stub;
    int num_streams = 0;
  };

  Channel* TakeChannel();
  void GiveBack(Channel* channel);
  // Returns a shared stream that takes calls, or null. Opens one if there is none. It shows the
  // token of `metadata`.
  std::shared_ptr<SharedStream> FindShared(const CallMetadata& metadata);
  // So many bytes of a stream may come before they are read.
  std::unique_ptr<v1::Generation::Stub> NewStub(int unread_bytes) const;
  void Prepare(grpc::ClientContext* context, const CallMetadata& metadata) const;
  // The token that a call shows.
  const std::string& TokenOf(const CallMetadata& metadata) const {
    return router_.token.empty() ? metadata.token : router_.token;
  }
  template <typename Request, typename Response>
  Pending Call(const boost::asio::any_io_executor& strand, Request request,
               const CallMetadata& metadata, typename UnaryCall<Request, Response>::Method method,
               OnEnd<Response> on_end, std::chrono::seconds deadline = kUnaryDeadline);

  const RouterAddress router_;
  // Each has a connection, so that unary calls find room whatever the router's --max-streams is.
  const std::unique_ptr<v1::Generation::Stub> unary_stub_;
  const std::unique_ptr<v1::Generation::Stub> shared_stub_;
  CallQueue queue_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Channel>> channels_;     // guarded by mutex_
  std::vector<std::shared_ptr<SharedStream>> shared_;  // guarded by mutex_; the newest last
  std::set<PendingCall*> unary_calls_;                 // guarded by mutex_
  bool is_ending_ = false;                             // guarded by mutex_
  std::optional<v1::ServerInfo> info_;                 // guarded by mutex_
  std::string info_token_;                         // guarded by mutex_; the token that got info_
  std::chrono::steady_clock::time_point info_at_;  // guarded by mutex_
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CLIENT_H_
