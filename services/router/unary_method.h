// A unary gRPC method.
#ifndef TANDEM_SERVICES_ROUTER_UNARY_METHOD_H_
#define TANDEM_SERVICES_ROUTER_UNARY_METHOD_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "common/rpc/async_tag.h"
#include "common/rpc/grpc_status.h"

namespace tandem {

// Serves any number of calls at once, one object each: a client that is slow to read its answer
// holds up no other. Everything runs on the thread that polls the completion queue. Must outlive
// the queue's last event.
template <typename Request, typename Reply>
class UnaryMethod {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  // Asks gRPC for a call: service->RequestMETHOD(context, request, writer, queue, queue, tag).
  using CallRequest = std::function<void(grpc::ServerContext*, Request*, Writer*, void* tag)>;
  using Respond = std::function<void(const absl::StatusOr<Reply>&)>;
  // Calls `respond` once, at once or later, on the polling thread; the request lives until then.
  using Handler = std::function<void(const Request&, Respond)>;

  UnaryMethod(CallRequest call_request, Handler handler)
      : call_request_(std::move(call_request)), handler_(std::move(handler)) {}

  void Serve() {
    auto call = std::make_unique<Call>(this);
    Call* waiting = call.get();
    calls_.emplace(waiting, std::move(call));
    call_request_(&waiting->context, &waiting->request, &waiting->writer, waiting->open_tag.get());
  }

 private:
  struct Call {
    explicit Call(UnaryMethod* owner) : method(owner) {}
    void OnOpened(bool ok) {
      if (!ok) return method->Forget(this);  // the server shuts down
      method->Serve();
      method->handler_(request, [this](const absl::StatusOr<Reply>& reply) {
        if (reply.ok()) {
          writer.Finish(*reply, grpc::Status::OK, finish_tag.get());
        } else {
          writer.FinishWithError(ToGrpcStatus(reply.status()), finish_tag.get());
        }
      });
    }
    void OnFinished(bool /*ok*/) { method->Forget(this); }

    UnaryMethod* method;
    grpc::ServerContext context;
    Request request;
    Writer writer{&context};
    MemberTag<Call> open_tag{this, &Call::OnOpened};
    MemberTag<Call> finish_tag{this, &Call::OnFinished};
  };

  void Forget(Call* call) { calls_.erase(call); }

  CallRequest call_request_;
  Handler handler_;
  std::unordered_map<Call*, std::unique_ptr<Call>> calls_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_UNARY_METHOD_H_
