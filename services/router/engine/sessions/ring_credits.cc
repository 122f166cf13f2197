#include "services/router/engine/sessions/ring_credits.h"

#include <utility>

namespace tandem {

std::optional<v1::CreateRing> RingCredits::Start(const Shape& shape,
                                                 std::vector<v1::RingTransport> transports) {
  Close();
  shape_ = shape;
  transports_ = std::move(transports);
  return TryNext();
}

std::optional<v1::CreateRing> RingCredits::TryNext() {
  if (transports_.empty()) {
    Close();
    return std::nullopt;
  }
  state_ = State::kCreating;
  v1::CreateRing create;
  create.set_transport(transports_.front());
  create.set_entries(shape_.entries);
  create.set_rows_per_entry(shape_.rows_per_entry);
  create.set_vocabulary_size(shape_.vocabulary_size);
  return create;
}

v1::OpenRing RingCredits::Created(const v1::CreateRingReply& reply) {
  state_ = State::kOpening;
  epoch_ = reply.ring_epoch();
  v1::OpenRing open;
  open.set_transport(transports_.front());
  open.set_ring_epoch(epoch_);
  open.set_socket_path(reply.socket_path());
  open.set_entries(shape_.entries);
  open.set_rows_per_entry(shape_.rows_per_entry);
  open.set_vocabulary_size(shape_.vocabulary_size);
  return open;
}

v1::ConfirmRing RingCredits::Opened(const v1::OpenRingReply& reply) {
  state_ = State::kConfirming;
  v1::ConfirmRing confirm;
  confirm.set_ring_epoch(epoch_);
  confirm.set_nonce(reply.nonce());
  return confirm;
}

void RingCredits::Confirmed() {
  state_ = State::kOpen;
  sequence_ = 0;
  free_.clear();
  for (uint32_t entry = shape_.entries; entry > 0; --entry) free_.push_back(entry - 1);
}

std::optional<v1::CreateRing> RingCredits::Refused() {
  if (!transports_.empty()) transports_.erase(transports_.begin());
  return TryNext();
}

void RingCredits::Close() {
  state_ = State::kClosed;
  free_.clear();
}

v1::RingTransport RingCredits::transport() const {
  return state_ == State::kClosed ? v1::RING_TRANSPORT_UNSPECIFIED : transports_.front();
}

std::optional<v1::RingReference> RingCredits::Acquire() {
  if (!open() || free_.empty()) return std::nullopt;
  v1::RingReference reference;
  reference.set_ring_epoch(epoch_);
  reference.set_entry(free_.back());
  reference.set_sequence(++sequence_);
  free_.pop_back();
  return reference;
}

void RingCredits::Release(const v1::RingReference& reference) {
  if (open() && reference.ring_epoch() == epoch_) free_.push_back(reference.entry());
}

}  // namespace tandem
