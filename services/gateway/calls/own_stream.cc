#include "services/gateway/calls/own_stream.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "services/gateway/calls/router_call.h"

namespace tandem::gateway {

namespace asio = boost::asio;

OwnStream::OwnStream(const asio::any_io_executor& strand, size_t choice,
                     std::shared_ptr<StreamListener> listener, CallQueue* queue,
                     std::function<void()> on_end)
    : strand_(strand),
      choice_(choice),
      listener_(std::move(listener)),
      queue_(queue),
      on_end_(std::move(on_end)) {}

void OwnStream::Start(v1::Generation::Stub& stub, const v1::GenerateRequest& request) {
  self_ = shared_from_this();
  is_busy_ = true;
  queue_->Enter();
  reader_ = stub.PrepareAsyncGenerate(&context_, request, queue_->get());
  reader_->StartCall(start_.get());
}

void OwnStream::Next() {
  if (is_canceled_ || is_busy_) return;
  Read();
}

void OwnStream::Cancel() {
  if (is_canceled_ || self_ == nullptr) return;
  is_canceled_ = true;
  context_.TryCancel();
  if (!is_busy_) Finish();
}

void OwnStream::Read() {
  is_busy_ = true;
  reader_->Read(&message_, read_.get());
}

void OwnStream::Finish() {
  is_busy_ = true;
  reader_->Finish(&status_, finish_.get());
}

void OwnStream::OnStarted(bool ok) {
  asio::dispatch(strand_, [this, ok] { AfterStart(ok); });
}

void OwnStream::AfterStart(bool ok) {
  if (!ok || is_canceled_) return Finish();
  Read();
}

void OwnStream::OnRead(bool ok) {
  // The message may be large, and the queue's thread has those of the shared streams to give out.
  asio::post(strand_, [this, ok] { AfterRead(ok); });
}

void OwnStream::AfterRead(bool ok) {
  if (!ok || is_canceled_) return Finish();
  is_busy_ = false;
  listener_->OnMessage(choice_, message_);
}

void OwnStream::OnFinished(bool /*ok*/) {
  asio::post(strand_, [this] { AfterEnd(); });
}

void OwnStream::AfterEnd() {
  const std::shared_ptr<OwnStream> self = std::exchange(self_, nullptr);
  const std::shared_ptr<StreamListener> listener = std::exchange(listener_, nullptr);
  listener->OnEnd(choice_, EndOf(context_, status_));
  on_end_();
  queue_->Leave();
}

}  // namespace tandem::gateway
