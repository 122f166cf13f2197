// One unary call of the router, as seen from a connection's strand.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_UNARY_CALL_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_UNARY_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "common/rpc/async_tag.h"
#include "services/gateway/api/answers/error_shape.h"
#include "services/gateway/calls/call_queue.h"
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

// Keeps itself alive until the answer has come.
template <typename Request, typename Response>
class UnaryCall final : public PendingCall,
                        public std::enable_shared_from_this<UnaryCall<Request, Response>> {
 public:
  // Gets the response if the end is OK. Called once, on the strand.
  using OnEnd = std::function<void(const CallEnd& end, const Response& response)>;

  // `queue` outlives the call.
  UnaryCall(const boost::asio::any_io_executor& strand, Request request, CallQueue* queue)
      : strand_(strand), request_(std::move(request)), queue_(queue) {}

  grpc::ClientContext* context() { return &context_; }
  void Cancel() override { context_.TryCancel(); }

  using Reader = grpc::ClientAsyncResponseReader<Response>;
  // One of the functions of the stub.
  using Method = std::unique_ptr<Reader> (v1::Generation::Stub::*)(grpc::ClientContext*,
                                                                   const Request&,
                                                                   grpc::CompletionQueue*);
  void Start(v1::Generation::Stub& stub, Method prepare, OnEnd on_end) {
    on_end_ = std::move(on_end);
    self_ = this->shared_from_this();
    queue_->Enter();
    reader_ = (stub.*prepare)(&context_, request_, queue_->get());
    reader_->StartCall();
    reader_->Finish(&response_, &status_, finish_.get());
  }

 private:
  void OnFinished(bool /*ok*/) {
    // The answer may be large, and the queue's thread has messages of streams to give out.
    boost::asio::post(strand_, [this] {
      const auto self = std::exchange(self_, nullptr);
      std::exchange(on_end_, nullptr)(EndOf(context_, status_), response_);
      queue_->Leave();
    });
  }

  const boost::asio::any_io_executor strand_;
  const Request request_;
  CallQueue* const queue_;
  OnEnd on_end_;
  grpc::ClientContext context_;
  std::unique_ptr<Reader> reader_;
  Response response_;
  grpc::Status status_;
  MemberTag<UnaryCall> finish_{this, &UnaryCall::OnFinished};
  std::shared_ptr<UnaryCall> self_;  // set until the end
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_UNARY_CALL_H_
