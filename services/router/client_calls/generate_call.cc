#include "services/router/client_calls/generate_call.h"

#include <string>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/security/call_interceptor.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/message_padding.h"

namespace tandem {

void GenerateCall::WaitForClient(v1::Generation::AsyncService* service,
                                 grpc::ServerCompletionQueue* queue) {
  // gRPC gives this tag back only if the call opens.
  context_.AsyncNotifyWhenDone(done_.tag());
  service->RequestGenerate(&context_, &mutable_request(), &writer_, queue, queue, open_.Begin());
}

void GenerateCall::OnOpened(bool ok) {
  if (!ok) return End();
  opened_ = true;
  done_.Expect();
  owner_->OnOpened(*this);
}

std::optional<Refusal> GenerateCall::Check(CallGate& gate) const {
  if (absl::Status status = CheckCall(gate, kGenerateMethod, context_); !status.ok()) {
    return Refusal{.status = std::move(status)};
  }
  return std::nullopt;
}

std::string GenerateCall::Metadata(const char* key) const {
  const auto found = context_.client_metadata().find(key);
  if (found == context_.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

bool GenerateCall::Write(v1::GenerateResponse response) {
  if (status_.has_value()) return true;
  if (!write_.under_way()) {
    Send(std::move(response));
    return true;
  }
  return waiting_.Put(response, buffer_bytes());
}

void GenerateCall::Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) {
  if (status_.has_value()) return;
  status_ = ToGrpcStatus(status);
  if (!status.ok()) {
    context_.AddTrailingMetadata("tandem-emitted-tokens", std::to_string(emitted_tokens));
  }
  if (retry_milliseconds > 0) {
    context_.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(retry_milliseconds));
  }
  WriteNext();
}

void GenerateCall::WriteNext() {
  if (finishing_ || write_.under_way()) return;
  if (!waiting_.empty()) {
    Send(waiting_.Take());
  } else if (status_.has_value()) {
    finishing_ = true;
    writer_.Finish(*status_, finish_.Begin());
  }
}

void GenerateCall::Send(v1::GenerateResponse&& response) {
  CountSent(response);
  PadToMultiple(padding_bytes_, &response);
  writer_.Write(response, write_.Begin());
}

void GenerateCall::OnWritten(bool ok) {
  if (!ok) waiting_.Clear();  // the call is over, and OnDone is called too
  WriteNext();
}

void GenerateCall::OnFinished(bool /*ok*/) { End(); }

void GenerateCall::OnDone(bool /*ok*/) {
  if (!status_.has_value()) {
    status_ = grpc::Status::CANCELLED;
    owner_->OnCanceled(*this);
  }
  waiting_.Clear();
  WriteNext();
}

}  // namespace tandem
