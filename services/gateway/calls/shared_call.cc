#include "services/gateway/calls/shared_call.h"

#include <boost/asio/post.hpp>
#include <string>
#include <utility>

#include "common/status.h"
#include "services/gateway/calls/shared_stream.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;

CallEnd EndOfEvent(const v1::CallEnd& event) {
  CallEnd end;
  end.status = absl::Status(static_cast<absl::StatusCode>(event.code()), event.message());
  end.is_from_router = true;
  if (event.retry_milliseconds() > 0) end.retry_milliseconds = event.retry_milliseconds();
  return end;
}

}  // namespace

SharedCall::SharedCall(const asio::any_io_executor& strand, size_t choice,
                       std::shared_ptr<StreamListener> listener)
    : strand_(strand), choice_(choice), listener_(std::move(listener)) {}

void SharedCall::SetStream(std::shared_ptr<SharedStream> stream, uint64_t number) {
  stream_ = std::move(stream);
  number_ = number;
}

void SharedCall::OnEvent(const v1::CallEvent& event) {
  if (listener_ == nullptr || is_canceled_) return;
  if (event.has_response()) {
    if (IsReady()) {
      Give(event.response());
    } else {
      Wait({event.response().SerializeAsString(), std::nullopt});
    }
  }
  if (event.has_end()) OnStreamEnd(EndOfEvent(event.end()));
}

void SharedCall::OnStreamEnd(const CallEnd& end) {
  if (listener_ == nullptr || is_canceled_) return;
  if (IsReady()) return End(end);
  Wait({"", end});
}

void SharedCall::Give(const v1::GenerateResponse& response) {
  wants_next_ = false;
  is_in_listener_ = true;
  const std::shared_ptr<StreamListener> listener = listener_;
  listener->OnMessage(choice_, response);
  is_in_listener_ = false;
}

void SharedCall::Wait(Waiting waiting) {
  waiting_bytes_ += waiting.response.size();
  waiting_.push_back(std::move(waiting));
  if (waiting_bytes_ <= kMaxHeldBytes) return;
  stream_->Cancel(number_);
  waiting_.clear();
  End({.status = ResourceExhausted("client too slow: more than " + std::to_string(kMaxHeldBytes) +
                                   " bytes of the stream wait to be read"),
       .is_from_router = true});
}

void SharedCall::GiveWaiting() {
  while (wants_next_ && !is_in_listener_ && !is_canceled_ && !waiting_.empty()) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= next.response.size();
    if (next.end.has_value()) return End(*next.end);
    v1::GenerateResponse response;
    response.ParseFromString(next.response);
    Give(response);
  }
}

void SharedCall::Next() {
  wants_next_ = true;
  if (is_in_listener_ || waiting_.empty()) return;
  const std::shared_ptr<SharedCall> self = shared_from_this();
  GiveWaiting();
}

void SharedCall::Cancel() {
  if (listener_ == nullptr || std::exchange(is_canceled_, true)) return;
  stream_->Cancel(number_);
  waiting_.clear();
  asio::post(strand_, [self = shared_from_this()] {
    self->End({.status = absl::CancelledError("the call was canceled")});
  });
}

void SharedCall::End(const CallEnd& end) {
  const std::shared_ptr<StreamListener> listener = std::exchange(listener_, nullptr);
  if (listener == nullptr) return;
  listener->OnEnd(choice_, end);
}

}  // namespace tandem::gateway
