// The slots of one pod: which sequence has which slot, and what each worker holds of it.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_SLOTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_SLOTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/router/engine/counts.h"
#include "services/router/engine/sequence.h"
#include "services/router/engine/slots/worker_peer.h"

namespace tandem {

struct RouterSlot {
  std::unique_ptr<Sequence> sequence;        // null: the slot is free
  uint32_t cohort = 0;                       // slots of one cohort share their rounds
  Fallback fallback = Fallback::kNoDrafter;  // why it has no draft in this round, if it has none
};

class Slots {
 public:
  // `num_drafters`: draft models of the pod.
  explicit Slots(uint32_t num_drafters = 1) : peers_(1 + num_drafters) {}

  void Resize(uint32_t num_slots);
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  RouterSlot& operator[](uint32_t id) { return slots_[id]; }
  const RouterSlot& operator[](uint32_t id) const { return slots_[id]; }

  WorkerPeer& peer(PeerId id) { return peers_[id]; }
  const WorkerPeer& peer(PeerId id) const { return peers_[id]; }
  WorkerPeer& verifier() { return peers_[kVerifierPeer]; }
  const WorkerPeer& verifier() const { return peers_[kVerifierPeer]; }
  // The verifier and the draft models.
  uint32_t num_peers() const { return static_cast<uint32_t>(peers_.size()); }

  // Slots with a sequence of a client. Replays of the audit do not count.
  size_t num_running() const { return num_running_; }
  // Slots with any sequence.
  size_t num_taken() const { return num_taken_; }
  std::optional<uint32_t> FreeSlot() const;
  std::optional<uint32_t> SlotOfReplay() const;
  std::optional<uint32_t> SlotOf(CallId call) const;  // replays are not looked at
  // The sequence in the slot if it still has the life that `serial` names; null otherwise.
  Sequence* Find(uint32_t slot_id, uint64_t serial) const;

  // Begins a life of the slot. PRECOND: the slot is free.
  void Occupy(uint32_t slot_id, std::unique_ptr<Sequence> sequence, size_t num_cohorts);
  // Ends it. PRECOND: the slot is taken.
  std::unique_ptr<Sequence> Vacate(uint32_t slot_id);

  // A replay waits in its slot while requests of clients run.
  bool IsWaiting(uint32_t slot_id) const;
  // Committed tokens that the worker's next command must bring. PRECOND: the slot is taken.
  uint32_t Lack(PeerId peer, uint32_t slot_id) const {
    return slots_[slot_id].sequence->committed_len() - peers_[peer].slot(slot_id).cached_len;
  }
  // Pages of the verifier that running requests will take with their committed tokens.
  int64_t PagesSpokenFor() const;
  // Returns true if the verifier has a page for each committed token of the sequence and one more.
  bool HasPagesFor(const Sequence& sequence) const;
  // The slot that gives its pages up for `sequence`: the youngest of those that are younger and
  // hold rows. None: there is none.
  std::optional<uint32_t> YoungestAfter(const Sequence& sequence) const;

 private:
  std::vector<RouterSlot> slots_;
  std::vector<WorkerPeer> peers_;  // by PeerId
  uint64_t last_serial_ = 0;
  size_t num_taken_ = 0;
  size_t num_running_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_SLOTS_H_
