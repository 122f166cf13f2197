// One unary call of the router, as seen from a connection's strand.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_UNARY_CALL_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_UNARY_CALL_H_

#include <grpcpp/client_context.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "services/gateway/api/answers/error_shape.h"
#include "services/gateway/calls/router_call.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

// A call that somebody waits for.
class PendingCall {
 public:
  virtual ~PendingCall() = default;

  // Thread-safe. The call ends soon, unless it has ended already.
  virtual void Cancel() = 0;
};

// Keeps itself and the strand's io_context alive until the answer has come.
template <typename Request, typename Response>
class UnaryCall final : public PendingCall,
                        public std::enable_shared_from_this<UnaryCall<Request, Response>> {
 public:
  // Gets the response if the end is OK. Called once, on the strand.
  using OnEnd = std::function<void(const CallEnd& end, const Response& response)>;

  UnaryCall(const boost::asio::any_io_executor& strand, Request request)
      : strand_(boost::asio::prefer(strand, boost::asio::execution::outstanding_work.tracked)),
        request_(std::move(request)) {}

  grpc::ClientContext* context() { return &context_; }
  void Cancel() override { context_.TryCancel(); }

  // One of the functions of the stub's asynchronous interface.
  using Method = void (v1::Generation::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  void Start(v1::Generation::Stub& stub, Method method, OnEnd on_end) {
    on_end_ = std::move(on_end);
    auto* const async = static_cast<v1::Generation::StubInterface&>(stub).async();
    (async->*method)(&context_, &request_, &response_,
                     [self = this->shared_from_this()](const grpc::Status& status) mutable {
                       // The last reference goes to the strand: gRPC's threads cannot destroy what
                       // may own them.
                       auto* const call = self.get();
                       boost::asio::post(call->strand_, [self = std::move(self), status] {
                         std::exchange(self->on_end_, nullptr)(EndOf(self->context_, status),
                                                               self->response_);
                       });
                     });
  }

 private:
  const boost::asio::any_io_executor strand_;
  const Request request_;
  OnEnd on_end_;
  grpc::ClientContext context_;
  Response response_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_UNARY_CALL_H_
