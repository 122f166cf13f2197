#include "services/router/client_calls/many/many_call.h"

#include <array>
#include <string_view>
#include <utility>

#include "common/security/call_interceptor.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/many/many_stream.h"
#include "services/router/client_calls/message_padding.h"

namespace tandem {

ManyCall::ManyCall(CallId id, size_t buffer_bytes, size_t padding_bytes,
                   v1::GenerateManyRequest begin, ManyStream* stream)
    : ClientCall(id, buffer_bytes),
      number_(begin.call()),
      padding_bytes_(padding_bytes),
      tenant_(std::move(*begin.mutable_tenant())),
      traceparent_(std::move(*begin.mutable_traceparent())),
      authorization_(std::move(*begin.mutable_authorization())),
      stream_(stream) {
  mutable_request().Swap(begin.mutable_generate());
}

absl::Status ManyCall::Check(CallGate& gate) const {
  if (authorization_.empty()) return CheckCall(gate, kGenerateMethod, stream_->context());
  return gate.Check(kGenerateMethod, std::array<std::string_view, 1>{authorization_});
}

bool ManyCall::Write(v1::GenerateResponse response) {
  if (finished_) return true;
  PadToMultiple(padding_bytes_, &response);
  waiting_bytes_ += response.ByteSizeLong();
  if (waiting_bytes_ > buffer_bytes()) {
    stream_->Drop(number_);
    waiting_bytes_ = 0;
    return false;
  }
  stream_->Write(number_, std::move(response));
  return true;
}

void ManyCall::OnSent(const v1::GenerateResponse& response) {
  CountSent(response);
  waiting_bytes_ -= response.ByteSizeLong();
}

void ManyCall::Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) {
  if (finished_) return;
  finished_ = true;
  v1::CallEnd end;
  end.set_code(static_cast<int32_t>(status.code()));
  end.set_message(std::string(status.message()));
  if (!status.ok()) end.set_emitted_tokens(emitted_tokens);
  end.set_retry_milliseconds(retry_milliseconds);
  stream_->End(number_, end);
}

}  // namespace tandem
