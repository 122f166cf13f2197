// The server's end of one Generate stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALL_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALL_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "common/rpc/call_lifetime.h"
#include "services/router/engine/engine_command.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// Waits for a client, then carries the client's responses. At most `buffer_bytes` of responses wait
// for a client that does not read, so memory is bounded. Everything runs on the thread that polls
// the completion queue.
class GenerateCall final : public CallLifetime {
 public:
  class Owner {
   public:
    virtual void OnOpened(GenerateCall& call) = 0;
    // The client canceled the call or left, or the deadline passed, before the call was finished.
    virtual void OnCanceled(GenerateCall& call) = 0;
    // gRPC has released the call. The owner may destroy the call now, and not before. `opened` is
    // false if the server shut down before a client came.
    virtual void OnClosed(GenerateCall& call, bool opened) = 0;

   protected:
    ~Owner() = default;
  };

  // Every response is padded to a multiple of `padding_bytes` (message_padding.h). 0: no padding.
  GenerateCall(CallId id, size_t buffer_bytes, size_t padding_bytes, Owner* owner)
      : id_(id), buffer_bytes_(buffer_bytes), padding_bytes_(padding_bytes), owner_(owner) {}

  void WaitForClient(v1::Generation::AsyncService* service, grpc::ServerCompletionQueue* queue);

  CallId id() const { return id_; }
  const grpc::ServerContext& context() const { return context_; }
  const v1::GenerateRequest& request() const { return request_; }
  // Frees the request's memory after the request was resolved. A request can be long and have
  // unknown fields, and its stream can last long.
  void DropRequest() { v1::GenerateRequest().Swap(&request_); }
  // Metadata `tandem-tenant`; empty: none. Each tenant's prompts are cached separately.
  std::string tenant() const { return Metadata("tandem-tenant"); }
  // Metadata `traceparent`, unchecked; empty: none.
  std::string traceparent() const { return Metadata("traceparent"); }

  // Returns true if the call was finished or canceled, or the client left. Responses that are
  // written from now on do not arrive.
  bool finished() const { return status_.has_value(); }

  // At least so many bytes of responses may wait, if the buffer is smaller.
  void RaiseBuffer(size_t bytes) { buffer_bytes_ = std::max(buffer_bytes_, bytes); }
  // Returns false if the client reads too slowly. The responses that were not sent yet are then
  // dropped, and the caller should finish the call.
  bool Write(v1::GenerateResponse response);
  // Number of tokens in the responses that gRPC was given.
  int num_sent_tokens() const { return num_sent_tokens_; }
  // Ends the call after the responses that were written. The first status counts.
  void Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds);

 private:
  std::string Metadata(const char* key) const;
  void OnOpened(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDone(bool ok);
  void OnQuiet() override { owner_->OnClosed(*this, opened_); }
  void WriteNext();
  void Send(v1::GenerateResponse&& response);

  const CallId id_;
  size_t buffer_bytes_;
  const size_t padding_bytes_;
  Owner* owner_;
  grpc::ServerContext context_;
  v1::GenerateRequest request_;
  grpc::ServerAsyncWriter<v1::GenerateResponse> writer_{&context_};
  // Serialized responses, because a response with logprobs takes seven times the memory as a
  // message.
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  int num_sent_tokens_ = 0;
  std::optional<grpc::Status> status_;  // status of the finished call
  bool opened_ = false;
  bool finishing_ = false;
  Operation<GenerateCall> open_{this, &GenerateCall::OnOpened};
  Operation<GenerateCall> write_{this, &GenerateCall::OnWritten};
  Operation<GenerateCall> finish_{this, &GenerateCall::OnFinished};
  Operation<GenerateCall> done_{this, &GenerateCall::OnDone};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALL_H_
