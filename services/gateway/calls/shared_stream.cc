#include "services/gateway/calls/shared_stream.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <charconv>
#include <utility>

#include "services/gateway/calls/router_call.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;

// Calls of a stream. The router counts a call until its end is written, so less than it allows.
constexpr size_t kMaxCalls = 768;
// A message that the router finds too large ends the stream that it came on, with all calls.
constexpr size_t kMaxRequestBytes = 16 << 10;

}  // namespace

void SharedStream::Start(v1::Generation::Stub& stub) {
  queue_->Enter();
  stream_ = stub.PrepareAsyncGenerateMany(&context_, queue_->get());
  stream_->StartCall(start_.get());
}

bool SharedStream::takes_calls() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen && calls_.size() < max_calls_;
}

bool SharedStream::is_opening() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpening;
}

bool SharedStream::has_ended() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kEnded;
}

void SharedStream::OnStarted(bool ok) {
  if (!ok) return Finish();
  stream_->ReadInitialMetadata(metadata_.get());
}

void SharedStream::OnMetadata(bool ok) {
  if (!ok) return Finish();
  {
    const std::lock_guard lock(mutex_);
    max_calls_ = std::min(kMaxCalls, (LimitOf("tandem-max-stream-calls") * 3 + 3) / 4);
    max_request_bytes_ = std::min(kMaxRequestBytes, LimitOf("tandem-max-message-bytes") / 2);
    if (max_calls_ == 0 || max_request_bytes_ == 0) {
      context_.TryCancel();  // not told
    } else if (state_ == State::kOpening) {
      state_ = State::kOpen;
    }
  }
  message_ = std::make_shared<v1::GenerateManyResponse>();
  Read();
}

size_t SharedStream::LimitOf(const char* key) const {
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto found = metadata.find(key);
  size_t limit = 0;
  if (found != metadata.end()) {
    std::from_chars(found->second.begin(), found->second.end(), limit);
  }
  return limit;
}

bool SharedStream::Begin(v1::GenerateManyRequest* message,
                         const std::shared_ptr<SharedCall>& call) {
  bool writes = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen || calls_.size() >= max_calls_ ||
        message->ByteSizeLong() > max_request_bytes_) {
      return false;
    }
    const uint64_t number = ++last_call_;
    call->SetStream(shared_from_this(), number);
    calls_.emplace(number, call);
    message->set_call(number);
    writes = Put(std::move(*message));
  }
  if (writes) WriteNext();
  return true;
}

void SharedStream::Cancel(uint64_t call) {
  bool writes = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(call);
    if (found == calls_.end() || found->second == nullptr) return;
    found->second = nullptr;  // it counts until its end comes, as in the router
    if (!may_write()) return;
    v1::GenerateManyRequest message;
    message.set_call(call);
    message.mutable_cancel();
    writes = Put(std::move(message));
  }
  if (writes) WriteNext();
  EndIfIdle();
}

void SharedStream::Retire() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpening) context_.TryCancel();
    if (state_ != State::kOpen) return;
    state_ = State::kRetired;
  }
  EndIfIdle();
}

bool SharedStream::Put(v1::GenerateManyRequest message) {
  outbox_.push_back(std::move(message));
  return !std::exchange(is_writing_, true);
}

void SharedStream::WriteNext() {
  const v1::GenerateManyRequest* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    next = &outbox_.front();
  }
  stream_->Write(*next, write_.get());
}

void SharedStream::OnWritten(bool ok) {
  bool has_more = false;
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    if (!outbox_.empty()) outbox_.pop_front();  // it is empty at the end of the client's side
    if (!ok) outbox_.clear();
    has_more = !outbox_.empty();
    is_writing_ = has_more;
    is_over = !has_more && state_ == State::kFinished;
  }
  if (has_more) return WriteNext();
  if (is_over) return End();
  EndIfIdle();
}

void SharedStream::EndIfIdle() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRetired || !calls_.empty() || is_writing_ || is_half_closed_) return;
    is_half_closed_ = true;
    is_writing_ = true;
  }
  stream_->WritesDone(write_.get());
}

std::vector<SharedStream::Delivery> SharedStream::DeliveriesOf(
    const v1::GenerateManyResponse& message) {
  std::vector<Delivery> deliveries;
  deliveries.reserve(static_cast<size_t>(message.events_size()));
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < message.events_size(); ++i) {
    const v1::CallEvent& event = message.events(i);
    const auto found = calls_.find(event.call());
    if (found == calls_.end()) continue;
    if (found->second != nullptr) deliveries.push_back({found->second, i});
    if (event.has_end()) calls_.erase(found);
  }
  return deliveries;
}

void SharedStream::OnRead(bool ok) {
  if (!ok) return Finish();
  const auto message = std::exchange(message_, std::make_shared<v1::GenerateManyResponse>());
  for (const Delivery& delivery : DeliveriesOf(*message)) {
    asio::dispatch(delivery.call->strand(), [message, delivery] {
      delivery.call->OnEvent(message->events(delivery.event));
    });
  }
  EndIfIdle();
  // Messages are given out one after the other, and a router waits if this thread is behind.
  Read();
}

void SharedStream::Finish() {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kEnding;
  }
  stream_->Finish(&status_, finish_.get());
}

void SharedStream::OnFinished(bool /*ok*/) {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kFinished;
    if (is_writing_) return;  // OnWritten goes on
  }
  End();
}

void SharedStream::End() {
  std::unordered_map<uint64_t, std::shared_ptr<SharedCall>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& [number, call] : calls) {
    if (call == nullptr) continue;
    asio::dispatch(call->strand(),
                   [call = call, end = EndOf(context_, status_)] { call->OnStreamEnd(end); });
  }
  calls.clear();
  const std::shared_ptr<SharedStream> self = shared_from_this();  // the owner may let go now
  CallQueue* const queue = queue_;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kEnded;
  }
  queue->Leave();
}

}  // namespace tandem::gateway
