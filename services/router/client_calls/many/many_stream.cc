#include "services/router/client_calls/many/many_stream.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/status.h"

namespace tandem {
namespace {

// A message takes no more events once it is so large.
constexpr size_t kFullMessageBytes = 64 << 10;

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
  if (!ok) return CallLifetime::End();
  done_.Expect();
  if (const absl::Status status = owner_->OnOpened(*this); !status.ok()) return Finish(status);
  stream_.SendInitialMetadata(greet_.Begin());
  stream_.Read(&request_, read_.Begin());
}

void ManyStream::OnGreeted(bool /*ok*/) { WriteNext(); }

void ManyStream::OnRead(bool ok) {
  CloseLeft();
  if (ok && !status_.has_value()) Handle(request_);
  if (ok && !status_.has_value()) return stream_.Read(&request_, read_.Begin());
  reads_ = false;
  WriteNext();
}

void ManyStream::Handle(v1::GenerateManyRequest& message) {
  const uint64_t number = message.call();
  const auto found = calls_.find(number);
  switch (message.action_case()) {
    case v1::GenerateManyRequest::kGenerate:
      if (found != calls_.end()) {
        return Finish(InvalidArgument("call: got " + std::to_string(number) +
                                      ", which is under way, allowed: a number that no call has"));
      }
      if (calls_.size() >= max_calls_) {
        return Refuse(number, ResourceExhausted("the stream has " + std::to_string(max_calls_) +
                                                " calls under way, and takes no more"));
      }
      if (!IsPrintable(message.tenant()) || !IsPrintable(message.traceparent()) ||
          !IsPrintable(message.authorization())) {
        return Refuse(number, InvalidArgument("tenant, traceparent, authorization: must be "
                                              "printable ASCII, as metadata are"));
      }
      return owner_->OnCall(*this, std::move(message));
    case v1::GenerateManyRequest::kCancel:
      if (found != calls_.end()) Cancel(*found->second);
      return;
    default:
      return Finish(InvalidArgument("action: must be generate or cancel"));
  }
}

void ManyStream::Refuse(uint64_t call, const absl::Status& status) {
  v1::CallEnd end;
  end.set_code(static_cast<int32_t>(status.code()));
  end.set_message(std::string(status.message()));
  End(call, end);
}

void ManyStream::Cancel(ManyCall& call) {
  if (call.finished()) return;
  call.SetCanceled();
  calls_owner_->OnCanceled(call);
  Drop(call.number());
  Refuse(call.number(), absl::CancelledError("the client canceled the call"));
}

void ManyStream::CancelAll() {
  for (const auto& [number, call] : std::exchange(calls_, {})) {
    left_.push_back(call);
    if (call->finished()) continue;
    call->SetCanceled();
    calls_owner_->OnCanceled(*call);
  }
}

void ManyStream::Finish(const absl::Status& status) {
  if (open_.under_way() || status_.has_value()) return;
  status_ = status;
  CancelAll();
  WriteNext();
}

v1::CallEvent* ManyStream::NewEvent(uint64_t call) {
  if (waiting_.empty() || last_bytes_ > kFullMessageBytes) {
    waiting_.emplace_back();
    last_bytes_ = 0;
  }
  v1::CallEvent* const event = waiting_.back().add_events();
  event->set_call(call);
  if (!std::exchange(waits_for_flush_, true)) owner_->OnEvents(*this);
  return event;
}

void ManyStream::Flush() {
  waits_for_flush_ = false;
  WriteNext();
}

void ManyStream::Write(uint64_t call, v1::GenerateResponse response) {
  if (status_.has_value()) return;
  v1::CallEvent* const event = NewEvent(call);
  *event->mutable_response() = std::move(response);
  last_bytes_ += event->ByteSizeLong();
}

void ManyStream::Drop(uint64_t call) {
  for (v1::GenerateManyResponse& message : waiting_) {
    auto* const events = message.mutable_events();
    events->erase(std::remove_if(events->begin(), events->end(),
                                 [call](const auto& event) { return event.call() == call; }),
                  events->end());
  }
}

void ManyStream::End(uint64_t call, const v1::CallEnd& end) {
  if (status_.has_value()) return;
  *NewEvent(call)->mutable_end() = end;
}

void ManyStream::NoteSent(const v1::GenerateManyResponse& message) {
  for (const v1::CallEvent& event : message.events()) {
    const auto found = calls_.find(event.call());
    if (found == calls_.end()) continue;
    if (event.has_response()) found->second->OnSent(event.response());
    if (!event.has_end()) continue;
    left_.push_back(found->second);
    calls_.erase(found);
  }
}

void ManyStream::WriteNext() {
  if (finishing_ || write_.under_way() || greet_.under_way()) return;
  while (!waiting_.empty() && waiting_.front().events().empty()) waiting_.pop_front();
  if (!waiting_.empty()) {
    const v1::GenerateManyResponse message = std::move(waiting_.front());
    waiting_.pop_front();
    NoteSent(message);
    stream_.Write(message, write_.Begin());
    return;
  }
  if (!reads_ && calls_.empty() && !status_.has_value()) status_ = absl::OkStatus();
  if (!status_.has_value()) return;
  finishing_ = true;
  stream_.Finish(ToGrpcStatus(*status_), finish_.Begin());
}

void ManyStream::OnWritten(bool ok) {
  CloseLeft();
  if (!ok) waiting_.clear();  // the stream is over, and OnDone is called too
  WriteNext();
}

void ManyStream::OnFinished(bool /*ok*/) {
  CloseLeft();
  CallLifetime::End();
}

void ManyStream::OnDone(bool /*ok*/) {
  if (!status_.has_value()) status_ = absl::CancelledError("");
  CancelAll();
  waiting_.clear();
  CloseLeft();
  WriteNext();
}

void ManyStream::CloseLeft() {
  for (ManyCall* const call : std::exchange(left_, {})) calls_owner_->OnClosed(*call, true);
}

}  // namespace tandem
