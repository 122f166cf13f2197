#include "services/gateway/calls/shared_stream.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
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
  self_ = shared_from_this();
  stub.async()->GenerateMany(&context_, this);
  AddHold();  // writes come from outside the reactor
  StartRead(&message_);
  StartCall();
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

void SharedStream::OnReadInitialMetadataDone(bool ok) {
  const std::lock_guard lock(mutex_);
  if (!ok || state_ != State::kOpening) return;
  max_calls_ = std::min(kMaxCalls, (LimitOf("tandem-max-stream-calls") * 3 + 3) / 4);
  max_request_bytes_ = std::min(kMaxRequestBytes, LimitOf("tandem-max-message-bytes") / 2);
  if (max_calls_ == 0 || max_request_bytes_ == 0) return context_.TryCancel();  // not told
  state_ = State::kOpen;
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
  if (std::exchange(is_writing_, true)) return false;
  AddHold();  // the stream cannot be done before the write is
  return true;
}

void SharedStream::WriteNext() {
  const v1::GenerateManyRequest* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    next = &outbox_.front();
  }
  StartWrite(next);
}

void SharedStream::OnWriteDone(bool ok) {
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    outbox_.pop_front();
    if (!ok) outbox_.clear();
    is_over = outbox_.empty();
    if (is_over) is_writing_ = false;
  }
  if (!is_over) return WriteNext();
  EndIfIdle();
  RemoveHold();
}

void SharedStream::EndIfIdle() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRetired || !calls_.empty() || is_writing_ || is_half_closed_) return;
    is_half_closed_ = true;
    AddHold();
  }
  StartWritesDone();
  RemoveHold();
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

void SharedStream::OnReadDone(bool ok) {
  if (!ok) {
    {
      const std::lock_guard lock(mutex_);
      state_ = State::kEnding;
    }
    return RemoveHold();
  }
  auto message = std::make_shared<v1::GenerateManyResponse>();
  message->Swap(&message_);
  std::vector<Delivery> deliveries = DeliveriesOf(*message);
  EndIfIdle();
  if (deliveries.empty()) return StartRead(&message_);
  asio::io_context& io = deliveries.front().call->io();
  asio::post(io, [this, message = std::move(message), deliveries = std::move(deliveries)] {
    for (const Delivery& delivery : deliveries) {
      asio::dispatch(delivery.call->strand(), [message, delivery] {
        delivery.call->OnEvent(message->events(delivery.event));
      });
    }
    // Messages are given out one after the other, and a router waits if the threads are behind.
    StartRead(&message_);
  });
}

void SharedStream::OnDone(const grpc::Status& status) {
  std::unordered_map<uint64_t, std::shared_ptr<SharedCall>> calls;
  std::shared_ptr<SharedStream> self;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
    self.swap(self_);
  }
  for (const auto& [number, call] : calls) {
    if (call == nullptr) continue;
    asio::post(call->strand(),
               [call = call, end = EndOf(context_, status)] { call->OnStreamEnd(end); });
  }
  calls.clear();
  const std::lock_guard lock(mutex_);
  state_ = State::kEnded;
  ended_.notify_all();
}

void SharedStream::Close() {
  context_.TryCancel();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return state_ == State::kEnded; });
}

}  // namespace tandem::gateway
