#include "services/router/client_calls/many/many_streams.h"

#include <utility>

#include "common/security/call_interceptor.h"
#include "services/router/client_calls/many/many_call.h"

namespace tandem {

void ManyStreams::WaitForClient() {
  auto stream = std::make_unique<ManyStream>(options_.limits, this, calls_);
  ManyStream* const waiting = stream.get();
  streams_.emplace(waiting, std::move(stream));
  waiting->WaitForClient(context_.service, context_.queue);
}

void ManyStreams::Flush() {
  for (ManyStream* const stream : std::exchange(waiting_, {})) stream->Flush();
}

void ManyStreams::OnClosed(ManyStream& stream) {
  waiting_.erase(&stream);
  streams_.erase(&stream);
}

void ManyStreams::Finish(const absl::Status& status) {
  for (const auto& [stream, owned] : streams_) stream->Finish(status);
}

absl::Status ManyStreams::OnOpened(ManyStream& stream) {
  WaitForClient();
  return CheckCall(*context_.gate, kGenerateManyMethod, stream.context());
}

void ManyStreams::OnCall(ManyStream& stream, v1::GenerateManyRequest begin,
                         std::optional<Refusal> refusal) {
  auto call =
      std::make_unique<ManyCall>(calls_->NewId(), options_.buffer_bytes, options_.padding_bytes,
                                 std::move(begin), std::move(refusal), &stream);
  stream.Add(*call);
  calls_->Take(std::move(call));
}

}  // namespace tandem
