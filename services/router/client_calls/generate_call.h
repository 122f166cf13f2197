// The server's end of one Generate stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALL_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALL_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <optional>
#include <string>

#include "common/rpc/call_lifetime.h"
#include "services/router/client_calls/client_call.h"
#include "services/router/client_calls/waiting_responses.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// Waits for a client, then carries the client's responses.
class GenerateCall final : public ClientCall, public CallLifetime {
 public:
  // Every response is padded to a multiple of `padding_bytes` (message_padding.h). 0: no padding.
  GenerateCall(CallId id, size_t buffer_bytes, size_t padding_bytes, Owner* owner)
      : ClientCall(id, buffer_bytes), padding_bytes_(padding_bytes), owner_(owner) {}

  void WaitForClient(v1::Generation::AsyncService* service, grpc::ServerCompletionQueue* queue);

  std::optional<Refusal> Check(CallGate& gate) const override;
  std::string tenant() const override { return Metadata("tandem-tenant"); }
  std::string traceparent() const override { return Metadata("traceparent"); }
  bool finished() const override { return status_.has_value(); }
  bool Write(v1::GenerateResponse response) override;
  void Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) override;

 private:
  std::string Metadata(const char* key) const;
  void OnOpened(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDone(bool ok);
  void OnQuiet() override { owner_->OnClosed(*this, opened_); }
  void WriteNext();
  void Send(v1::GenerateResponse&& response);

  const size_t padding_bytes_;
  Owner* owner_;
  grpc::ServerContext context_;
  grpc::ServerAsyncWriter<v1::GenerateResponse> writer_{&context_};
  WaitingResponses waiting_;
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
