#include "services/router/client_calls/many/many_call.h"

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/security/call_interceptor.h"
#include "common/tokenizer/text/unicode.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/many/many_stream.h"
#include "services/router/client_calls/message_padding.h"

namespace tandem {
namespace {

constexpr size_t kOverheadBytes = 32;  // number, tags and lengths of an event

// A message with an invalid text would end the stream at the client.
std::string Repaired(absl::string_view text) {
  std::string incomplete;
  std::string repaired;
  AppendRepairedUtf8({text.data(), text.size()}, incomplete, repaired);
  return repaired;
}

std::optional<std::string> AuthorizationOf(v1::GenerateManyRequest& begin) {
  if (!begin.has_authorization()) return std::nullopt;
  return std::move(*begin.mutable_authorization());
}

}  // namespace

ManyCall::ManyCall(CallId id, size_t buffer_bytes, size_t padding_bytes,
                   v1::GenerateManyRequest begin, std::optional<Refusal> refusal,
                   ManyStream* stream)
    : ClientCall(id, buffer_bytes),
      number_(begin.call()),
      padding_bytes_(padding_bytes),
      tenant_(std::move(*begin.mutable_tenant())),
      traceparent_(std::move(*begin.mutable_traceparent())),
      authorization_(AuthorizationOf(begin)),
      refusal_(std::move(refusal)),
      stream_(stream) {
  if (!refusal_.has_value()) mutable_request().Swap(begin.mutable_generate());
}

std::optional<Refusal> ManyCall::Check(CallGate& gate) const {
  if (refusal_.has_value()) return refusal_;
  absl::Status status;
  if (!authorization_.has_value()) {
    status = CheckCall(gate, kGenerateMethod, stream_->context());
  } else if (authorization_->empty()) {
    status = gate.Check(kGenerateMethod, {});
  } else {
    status = gate.Check(kGenerateMethod, std::array<std::string_view, 1>{*authorization_});
  }
  if (status.ok()) return std::nullopt;
  return Refusal{.status = std::move(status)};
}

bool ManyCall::Write(v1::GenerateResponse response) {
  if (finished()) return true;
  if (!waiting_.Put(response, buffer_bytes())) return false;
  stream_->SetReady(*this);
  return true;
}

void ManyCall::Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) {
  if (finished()) return;
  DropRequest();  // a refused call may wait for long until the client has read why
  v1::CallEnd& end = end_.emplace();
  end.set_code(static_cast<int32_t>(status.code()));
  end.set_message(Repaired(status.message()));
  if (!status.ok()) end.set_emitted_tokens(emitted_tokens);
  end.set_retry_milliseconds(retry_milliseconds);
  stream_->SetReady(*this);
}

void ManyCall::Cancel(const absl::Status& why) {
  waiting_.Clear();
  Finish(why, num_sent_tokens(), 0);
}

size_t ManyCall::next_bytes() const {
  const size_t of_response = waiting_.empty() ? 0 : waiting_.next_bytes();
  return kOverheadBytes + of_response + padding_bytes_ +
         (end_.has_value() ? end_->message().size() : 0);
}

v1::CallEvent ManyCall::Take() {
  v1::CallEvent event;
  event.set_call(number_);
  if (!waiting_.empty()) {
    *event.mutable_response() = waiting_.Take();
    PadToMultiple(padding_bytes_, event.mutable_response());
    CountSent(event.response());
  }
  if (waiting_.empty() && end_.has_value()) {
    *event.mutable_end() = *end_;
    is_over_ = true;
  }
  return event;
}

}  // namespace tandem
