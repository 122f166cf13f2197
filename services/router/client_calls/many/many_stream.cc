#include "services/router/client_calls/many/many_stream.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/status.h"
#include "services/router/client_calls/call_context.h"

namespace tandem {
namespace {

// A message takes no more events once it is so large, or half as large as gRPC allows.
constexpr size_t kFullMessageBytes = 64 << 10;

// Largest size of what a call has in place of metadata. gRPC's metadata have the same limit.
constexpr size_t kMaxFieldBytes = 16 << 10;

absl::Status CanceledByClient() { return absl::CancelledError("the client canceled the call"); }

// Metadata can have no other characters either.
bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

void ManyStream::WaitForClient(v1::Generation::AsyncService* service,
                               grpc::ServerCompletionQueue* queue) {
  // gRPC gives this tag back only if the stream opens.
  context_.AsyncNotifyWhenDone(done_.tag());
  service->RequestGenerateMany(&context_, &stream_, queue, queue, open_.Begin());
}

void ManyStream::OnOpened(bool ok) {
  if (!ok) return End();
  done_.Expect();
  if (const absl::Status status = owner_->OnOpened(*this); !status.ok()) return Finish(status);
  context_.AddInitialMetadata("tandem-max-stream-calls", std::to_string(limits_.calls));
  context_.AddInitialMetadata("tandem-max-message-bytes", std::to_string(limits_.message_bytes));
  stream_.SendInitialMetadata(greet_.Begin());
  stream_.Read(&request_, read_.Begin());
}

void ManyStream::OnGreeted(bool /*ok*/) { WriteNext(); }

void ManyStream::OnRead(bool ok) {
  if (ok && !status_.has_value()) Handle(request_);
  CloseLeft();
  if (ok && !status_.has_value()) return stream_.Read(&request_, read_.Begin());
  reads_ = false;
  WriteNext();
}

void ManyStream::Handle(v1::GenerateManyRequest& message) {
  const auto found = calls_.find(message.call());
  switch (message.action_case()) {
    case v1::GenerateManyRequest::kGenerate:
      if (found != calls_.end()) {
        return Abort(InvalidArgument("call: got " + std::to_string(message.call()) +
                                     ", which is under way, allowed: a number that no call has"));
      }
      return Begin(std::move(message));
    case v1::GenerateManyRequest::kCancel:
      if (found != calls_.end()) Cancel(*found->second, CanceledByClient());
      return;
    default:
      return Abort(InvalidArgument("action: must be generate or cancel"));
  }
}

void ManyStream::Begin(v1::GenerateManyRequest message) {
  // Calls are here until the client has read how they ended, also refused and canceled ones.
  if (calls_.size() >= 2 * limits_.calls) {
    return Abort(Unavailable("too many ends of calls wait to be read"));
  }
  std::optional<Refusal> refusal = RefusalOf(message);
  if (refusal.has_value()) {
    const uint64_t number = message.call();
    message.Clear();
    message.set_call(number);
  }
  owner_->OnCall(*this, std::move(message), std::move(refusal));
}

std::optional<Refusal> ManyStream::RefusalOf(const v1::GenerateManyRequest& message) const {
  if (calls_.size() >= limits_.calls) {
    return Refusal{.status = ResourceExhausted("the stream has " + std::to_string(limits_.calls) +
                                               " calls under way, and takes no more"),
                   .retry_milliseconds = kRetryMilliseconds};
  }
  const size_t field_bytes =
      message.tenant().size() + message.traceparent().size() + message.authorization().size();
  if (field_bytes > kMaxFieldBytes) {
    return Refusal{.status = InvalidArgument(
                       "tenant, traceparent, authorization: got " + std::to_string(field_bytes) +
                       " bytes, allowed: at most " + std::to_string(kMaxFieldBytes) + " together")};
  }
  if (IsPrintable(message.tenant()) && IsPrintable(message.traceparent()) &&
      IsPrintable(message.authorization())) {
    return std::nullopt;
  }
  return Refusal{.status = InvalidArgument("tenant, traceparent, authorization: must be printable "
                                           "ASCII, as metadata are")};
}

void ManyStream::Cancel(ManyCall& call, const absl::Status& why) {
  if (call.finished()) return;
  call.Cancel(why);
  calls_owner_->OnCanceled(call);
}

void ManyStream::CancelAll() {
  for (const auto& [number, call] : std::exchange(calls_, {})) {
    Cancel(*call, CanceledByClient());
    left_.push_back(call);
  }
  ready_.clear();
}

void ManyStream::Finish(const absl::Status& status) {
  if (open_.under_way() || status_.has_value()) return;
  status_ = status;
  for (const auto& [number, call] : calls_) Cancel(*call, status);
  WriteNext();
}

void ManyStream::Abort(const absl::Status& status) {
  status_ = status;
  CancelAll();
  WriteNext();
}

void ManyStream::SetReady(ManyCall& call) {
  if (call.is_ready()) return;
  call.set_ready(true);
  ready_.push_back(&call);
  if (!std::exchange(waits_for_flush_, true)) owner_->OnEvents(*this);
}

void ManyStream::Flush() {
  waits_for_flush_ = false;
  WriteNext();
}

v1::GenerateManyResponse ManyStream::TakeEvents() {
  const size_t full_bytes = std::min(kFullMessageBytes, limits_.message_bytes / 2);
  v1::GenerateManyResponse message;
  size_t bytes = 0;
  while (!ready_.empty()) {
    ManyCall& call = *ready_.front();
    if (message.events_size() > 0 && bytes + call.next_bytes() > full_bytes) break;
    bytes += call.next_bytes();
    *message.add_events() = call.Take();
    ready_.pop_front();
    if (call.has_more()) {
      ready_.push_back(&call);  // other calls come first
      continue;
    }
    call.set_ready(false);
    if (!call.is_over()) continue;
    left_.push_back(&call);
    calls_.erase(call.number());
  }
  return message;
}

void ManyStream::WriteNext() {
  if (finishing_ || write_.under_way() || greet_.under_way()) return;
  if (!ready_.empty()) return stream_.Write(TakeEvents(), write_.Begin());
  if (!reads_ && calls_.empty() && !status_.has_value()) status_ = absl::OkStatus();
  if (!status_.has_value()) return;
  finishing_ = true;
  stream_.Finish(ToGrpcStatus(*status_), finish_.Begin());
}

void ManyStream::OnWritten(bool ok) {
  CloseLeft();
  if (!ok) {  // the stream is over, and OnDone is called too
    if (!status_.has_value()) status_ = absl::CancelledError("");
    CancelAll();
  }
  WriteNext();
}

void ManyStream::OnFinished(bool /*ok*/) {
  CancelAll();
  CloseLeft();
  End();
}

void ManyStream::OnDone(bool /*ok*/) {
  if (!status_.has_value()) status_ = absl::CancelledError("");
  CancelAll();
  CloseLeft();
  WriteNext();
}

void ManyStream::CloseLeft() {
  for (ManyCall* const call : std::exchange(left_, {})) calls_owner_->OnClosed(*call, true);
}

}  // namespace tandem
