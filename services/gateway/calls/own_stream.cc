#include "services/gateway/calls/own_stream.h"

#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <utility>

#include "services/gateway/calls/router_call.h"

namespace tandem::gateway {

namespace asio = boost::asio;

OwnStream::OwnStream(const asio::any_io_executor& strand, size_t choice,
                     std::shared_ptr<StreamListener> listener, std::function<void()> on_end)
    : strand_(asio::prefer(strand, asio::execution::outstanding_work.tracked)),
      choice_(choice),
      listener_(std::move(listener)),
      on_end_(std::move(on_end)) {}

void OwnStream::Start(v1::Generation::Stub& stub, const v1::GenerateRequest& request) {
  self_ = shared_from_this();
  stub.async()->Generate(&context_, &request, this);
  AddHold();  // reads come from outside the reactor
  is_held_ = true;
  is_reading_ = true;
  StartRead(&message_);
  StartCall();
}

void OwnStream::Next() {
  if (is_canceled_ || !is_held_ || is_reading_) return;
  is_reading_ = true;
  StartRead(&message_);
}

void OwnStream::Cancel() {
  if (is_canceled_ || self_ == nullptr) return;
  is_canceled_ = true;
  context_.TryCancel();
  if (!is_reading_) Release();
}

void OwnStream::OnReadDone(bool ok) {
  asio::post(strand_, [this, ok] { AfterRead(ok); });
}

void OwnStream::AfterRead(bool ok) {
  is_reading_ = false;
  if (!ok || is_canceled_) return Release();
  listener_->OnMessage(choice_, message_);
}

void OwnStream::Release() {
  if (std::exchange(is_held_, false)) RemoveHold();
}

void OwnStream::OnDone(const grpc::Status& status) {
  asio::post(strand_, [this, status] { AfterDone(status); });
}

void OwnStream::AfterDone(const grpc::Status& status) {
  const std::shared_ptr<OwnStream> self = std::exchange(self_, nullptr);
  const std::shared_ptr<StreamListener> listener = std::exchange(listener_, nullptr);
  listener->OnEnd(choice_, EndOf(context_, status));
  on_end_();
}

}  // namespace tandem::gateway
