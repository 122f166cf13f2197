// A unary gRPC method.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_UNARY_METHOD_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_UNARY_METHOD_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/call_lifetime.h"
#include "common/rpc/grpc_status.h"

namespace tandem {

// Memory budget for the unread replies of all methods together.
class ReplyBudget {
 public:
  explicit ReplyBudget(size_t bytes) : bytes_(bytes) {}
  // Returns false, and takes nothing, if the budget has less than `bytes` left.
  bool Take(size_t bytes) {
    if (bytes > bytes_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void GiveBack(size_t bytes) { used_ -= bytes; }

 private:
  const size_t bytes_;
  size_t used_ = 0;
};

// Serves any number of calls at once, with one object for each call. A client that reads its reply
// slowly delays no other client, and its call is canceled after kReadSeconds. Everything runs on
// the thread that polls the completion queue. The object must outlive the queue's last event.
template <typename Request, typename Reply>
class UnaryMethod {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  // Asks gRPC for a call: service->RequestMETHOD(context, request, writer, queue, queue, tag).
  using CallRequest = std::function<void(grpc::ServerContext*, Request*, Writer*, void* tag)>;
  using Respond = std::function<void(const absl::StatusOr<Reply>&)>;
  // Calls `respond` once on the polling thread, immediately or later. The request lives until then.
  using Handler = std::function<void(const Request&, Respond)>;
  // Returns why the client may not make the call, or OK.
  using Check = std::function<absl::Status(const grpc::ServerContext&)>;

  static constexpr int kReadSeconds = 30;  // time to read a reply

  // `budget` must outlive the object. If the budget has no room for a reply, the call ends with
  // RESOURCE_EXHAUSTED.
  UnaryMethod(grpc::ServerCompletionQueue* queue, ReplyBudget* budget, CallRequest call_request,
              Check check, Handler handler)
      : queue_(queue),
        budget_(budget),
        call_request_(std::move(call_request)),
        check_(std::move(check)),
        handler_(std::move(handler)) {}

  void Serve() {
    auto call = std::make_unique<Call>(this);
    Call* waiting = call.get();
    calls_.emplace(waiting, std::move(call));
    call_request_(&waiting->context, &waiting->request, &waiting->writer, waiting->open.Begin());
  }

 private:
  struct Call final : CallLifetime {
    explicit Call(UnaryMethod* owner) : method(owner) {}
    void OnOpened(bool ok) {
      if (!ok) return End();  // the server shuts down
      method->Serve();
      if (const absl::Status status = method->check_(context); !status.ok()) return Finish(status);
      method->handler_(request, [this](const absl::StatusOr<Reply>& reply) { Finish(reply); });
    }
    void Finish(const absl::StatusOr<Reply>& reply) {
      Request().Swap(&request);  // frees the request while the client reads
      const size_t bytes = reply.ok() ? reply->ByteSizeLong() : 0;
      if (!reply.ok()) {
        writer.FinishWithError(ToGrpcStatus(reply.status()), finish.Begin());
      } else if (method->budget_->Take(bytes)) {
        taken = bytes;
        writer.Finish(*reply, grpc::Status::OK, finish.Begin());
      } else {
        writer.FinishWithError({grpc::StatusCode::RESOURCE_EXHAUSTED,
                                "too many answers wait to be read by their clients"},
                               finish.Begin());
      }
      // The tag of `finish` comes back when gRPC has passed the reply on. A client that does not
      // read delays this.
      too_slow.Set(method->queue_,
                   gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_seconds(kReadSeconds, GPR_TIMESPAN)),
                   limit.Begin());
    }
    void OnFinished(bool /*ok*/) {
      method->budget_->GiveBack(taken);
      too_slow.Cancel();
      End();
    }
    void OnTooSlow(bool is_due) {
      if (is_due) context.TryCancel();
    }
    void OnQuiet() override { method->calls_.erase(this); }

    UnaryMethod* method;
    grpc::ServerContext context;
    Request request;
    Writer writer{&context};
    grpc::Alarm too_slow;
    size_t taken = 0;  // bytes of the budget
    Operation<Call> open{this, &Call::OnOpened};
    Operation<Call> finish{this, &Call::OnFinished};
    Operation<Call> limit{this, &Call::OnTooSlow};  // alarm `too_slow`
  };

  grpc::ServerCompletionQueue* queue_;
  ReplyBudget* budget_;
  CallRequest call_request_;
  Check check_;
  Handler handler_;
  std::unordered_map<Call*, std::unique_ptr<Call>> calls_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_UNARY_METHOD_H_
