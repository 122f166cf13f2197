// The router's side of the log-prob ring: the transport of the ring, and its free entries.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_RING_CREDITS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_RING_CREDITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/v1/worker.pb.h"

namespace tandem {

// Negotiates the ring, then keeps the list of its free entries.
//
// The negotiation has three steps for each transport in turn: CreateRing (verifier), OpenRing
// (drafter), ConfirmRing (verifier, with the nonce that the drafter read). After a refusal in any
// step, the next transport is tried. The router hands out the entries, so that the drafter never
// fills an entry that the verifier may still read.
class RingCredits {
 public:
  struct Shape {
    uint32_t entries = 0;
    uint32_t rows_per_entry = 0;
    uint32_t vocabulary_size = 0;
  };

  // Begins a new negotiation and forgets the entries that an earlier ring handed out. Returns no
  // command if `transports` is empty.
  std::optional<v1::CreateRing> Start(const Shape& shape,
                                      std::vector<v1::RingTransport> transports);
  v1::OpenRing Created(const v1::CreateRingReply& reply);
  v1::ConfirmRing Opened(const v1::OpenRingReply& reply);
  void Confirmed();
  // Goes on with the next transport. Without one, returns no command, and the ring stays closed.
  std::optional<v1::CreateRing> Refused();
  // Called when a worker is lost. No entry is handed out until the next ring is open.
  void Close();

  bool negotiating() const { return state_ != State::kClosed && state_ != State::kOpen; }
  bool open() const { return state_ == State::kOpen; }
  // Transport of the ring that is open or under negotiation. Without one, UNSPECIFIED.
  v1::RingTransport transport() const;

  // Takes a free entry. Returns none if the ring is not open or all entries are in use.
  std::optional<v1::RingReference> Acquire();
  // Gives an entry back. A reference to an earlier ring is ignored.
  void Release(const v1::RingReference& reference);
  size_t num_free() const { return free_.size(); }
  uint64_t epoch() const { return epoch_; }  // the open ring's

 private:
  enum class State { kClosed, kCreating, kOpening, kConfirming, kOpen };

  std::optional<v1::CreateRing> TryNext();

  State state_ = State::kClosed;
  Shape shape_;
  std::vector<v1::RingTransport>
      transports_;  // transports that are left to try, the current one first
  uint64_t epoch_ = 0;
  uint64_t sequence_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_RING_CREDITS_H_
