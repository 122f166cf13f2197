// The router's side of the log-prob ring: which transport, and who may fill which entry.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_RING_CREDITS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_RING_CREDITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/v1/worker.pb.h"

namespace tandem {

// Negotiated in three steps for each transport in turn: CreateRing (verifier), OpenRing (drafter),
// ConfirmRing (verifier, with the nonce that the drafter read). A refusal anywhere goes on with the
// next transport. Then a free list of entries: the router holds the credits, so an entry is never
// filled while it may still be read.
class RingCredits {
 public:
  struct Shape {
    uint32_t entries = 0;
    uint32_t rows_per_entry = 0;
    uint32_t vocabulary_size = 0;
  };

  // Begins anew; what was handed out of an earlier ring is forgotten. None: no transport to try.
  std::optional<v1::CreateRing> Start(const Shape& shape,
                                      std::vector<v1::RingTransport> transports);
  v1::OpenRing Created(const v1::CreateRingReply& reply);
  v1::ConfirmRing Opened(const v1::OpenRingReply& reply);
  void Confirmed();
  // The next transport, or none: then the ring stays closed.
  std::optional<v1::CreateRing> Refused();
  // A peer is gone: entries that it was filling are poisoned until the next ring.
  void Close();

  bool negotiating() const { return state_ != State::kClosed && state_ != State::kOpen; }
  bool open() const { return state_ == State::kOpen; }
  v1::RingTransport transport()
      const;  // of the ring that is open or being negotiated, else UNSPECIFIED

  // Takes an entry. None: the ring is closed, or all are in use.
  std::optional<v1::RingReference> Acquire();
  // Gives it back. References of earlier rings are ignored.
  void Release(const v1::RingReference& reference);
  size_t num_free() const { return free_.size(); }

 private:
  enum class State { kClosed, kCreating, kOpening, kConfirming, kOpen };

  std::optional<v1::CreateRing> TryNext();

  State state_ = State::kClosed;
  Shape shape_;
  std::vector<v1::RingTransport> transports_;  // still to try, the current one first
  uint64_t epoch_ = 0;
  uint64_t sequence_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_RING_CREDITS_H_
