// The server's end of one Generate stream.
#ifndef TANDEM_SERVICES_ROUTER_CALLS_GENERATE_CALL_H_
#define TANDEM_SERVICES_ROUTER_CALLS_GENERATE_CALL_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "common/rpc/call_lifetime.h"
#include "services/router/engine/engine_command.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// Waits for a client, then carries its responses. Memory is bounded: at most `buffer_bytes` wait
// for a client that does not read. Everything runs on the thread that polls the completion queue.
class GenerateCall final : public CallLifetime {
 public:
  class Owner {
   public:
    virtual void OnOpened(GenerateCall& call) = 0;
    // The client cancelled the call or left, or its deadline passed, before the call was finished.
    virtual void OnCancelled(GenerateCall& call) = 0;
    // gRPC has let go of the call, which may be destroyed now, and not before. `opened` is false if
    // the server shut down before a client came.
    virtual void OnClosed(GenerateCall& call, bool opened) = 0;

   protected:
    ~Owner() = default;
  };

  // Every response is padded to a multiple of `padding_bytes` (message_padding.h); 0: none is.
  GenerateCall(CallId id, size_t buffer_bytes, size_t padding_bytes, Owner* owner)
      : id_(id), buffer_bytes_(buffer_bytes), padding_bytes_(padding_bytes), owner_(owner) {}

  void WaitForClient(v1::Generation::AsyncService* service, grpc::ServerCompletionQueue* queue);

  CallId id() const { return id_; }
  const grpc::ServerContext& context() const { return context_; }
  const v1::GenerateRequest& request() const { return request_; }
  // Once it was understood: it may be long, with fields that nobody knows, and a stream too.
  void DropRequest() { v1::GenerateRequest().Swap(&request_); }
  // Metadata `tandem-tenant`; empty: none. Prompts are cached for each tenant apart.
  std::string tenant() const { return Metadata("tandem-tenant"); }
  // Metadata of that name, as it came; empty: none.
  std::string traceparent() const { return Metadata("traceparent"); }

  // Finished, cancelled or gone: nothing written from now on arrives.
  bool finished() const { return status_.has_value(); }

  // False: the client reads too slowly. What was not sent yet is dropped, and the call should be
  // finished.
  bool Write(v1::GenerateResponse response);
  // Tokens of the responses that gRPC was given.
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
  const size_t buffer_bytes_;
  const size_t padding_bytes_;
  Owner* owner_;
  grpc::ServerContext context_;
  v1::GenerateRequest request_;
  grpc::ServerAsyncWriter<v1::GenerateResponse> writer_{&context_};
  // Serialized: as a message, a response with logprobs takes seven times the memory.
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  int num_sent_tokens_ = 0;
  std::optional<grpc::Status> status_;  // to finish with
  bool opened_ = false;
  bool finishing_ = false;
  Operation<GenerateCall> open_{this, &GenerateCall::OnOpened};
  Operation<GenerateCall> write_{this, &GenerateCall::OnWritten};
  Operation<GenerateCall> finish_{this, &GenerateCall::OnFinished};
  Operation<GenerateCall> done_{this, &GenerateCall::OnDone};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CALLS_GENERATE_CALL_H_
