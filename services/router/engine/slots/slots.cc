#include "services/router/engine/slots/slots.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

bool IsOfClient(const RouterSlot& slot) {
  return slot.sequence != nullptr && !slot.sequence->is_replay();
}

template <typename Predicate>
std::optional<uint32_t> FirstSlot(const std::vector<RouterSlot>& slots, Predicate predicate) {
  const auto it = std::find_if(slots.begin(), slots.end(), predicate);
  if (it == slots.end()) return std::nullopt;
  return static_cast<uint32_t>(it - slots.begin());
}

}  // namespace

void Slots::Resize(uint32_t num_slots) {
  slots_.resize(num_slots);
  for (WorkerPeer& peer : peers_) peer.ResizeSlots(num_slots);
}

std::optional<uint32_t> Slots::FreeSlot() const {
  return FirstSlot(slots_, [](const RouterSlot& slot) { return slot.sequence == nullptr; });
}

std::optional<uint32_t> Slots::SlotOfReplay() const {
  if (num_taken_ == num_running_) return std::nullopt;
  return FirstSlot(slots_, [](const RouterSlot& slot) {
    return slot.sequence != nullptr && slot.sequence->is_replay();
  });
}

std::optional<uint32_t> Slots::SlotOf(CallId call) const {
  return FirstSlot(slots_, [call](const RouterSlot& slot) {
    return IsOfClient(slot) && slot.sequence->call == call;
  });
}

Sequence* Slots::Find(uint32_t slot_id, uint64_t serial) const {
  Sequence* sequence = slots_[slot_id].sequence.get();
  return sequence != nullptr && sequence->serial == serial ? sequence : nullptr;
}

void Slots::Occupy(uint32_t slot_id, std::unique_ptr<Sequence> sequence, size_t num_cohorts) {
  // The sequence goes to the cohort with the fewest.
  std::vector<uint32_t> sizes(num_cohorts);
  for (const RouterSlot& other : slots_) {
    if (other.sequence != nullptr) ++sizes[other.cohort];
  }
  RouterSlot& slot = slots_[slot_id];
  slot.cohort = static_cast<uint32_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
  sequence->serial = ++last_serial_;
  slot.sequence = std::move(sequence);
  ++num_taken_;
  if (IsOfClient(slot)) ++num_running_;
  for (WorkerPeer& peer : peers_) peer.BeginLife(slot_id);
}

std::unique_ptr<Sequence> Slots::Vacate(uint32_t slot_id) {
  for (WorkerPeer& peer : peers_) peer.Close(slot_id);
  RouterSlot& slot = slots_[slot_id];
  --num_taken_;
  if (IsOfClient(slot)) --num_running_;
  slot.sequence->last_slot = SlotLife{slot_id, verifier().slot(slot_id).epoch};
  return std::move(slot.sequence);
}

bool Slots::IsWaiting(uint32_t slot_id) const {
  return slots_[slot_id].sequence->is_replay() && num_running() > 0;
}

int64_t Slots::PagesSpokenFor() const {
  const PageBudget& pages = verifier().pages();
  int64_t spoken_for = 0;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (!IsOfClient(slots_[id])) continue;
    spoken_for += pages.PagesOf(slots_[id].sequence->committed_len() + 1) -
                  pages.PagesOf(verifier().slot(id).cached_len);
  }
  return spoken_for;
}

bool Slots::HasPagesFor(const Sequence& sequence) const {
  const PageBudget& pages = verifier().pages();
  if (!pages.limited()) return true;
  return pages.PagesOf(sequence.committed_len() + 1) + 1 <= pages.num_free() - PagesSpokenFor();
}

std::optional<uint32_t> Slots::YoungestAfter(const Sequence& sequence) const {
  std::optional<uint32_t> youngest;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const Sequence* other = slots_[id].sequence.get();
    if (other == nullptr || other->order <= sequence.order || verifier().slot(id).cached_len == 0) {
      continue;
    }
    if (!youngest.has_value() || other->order > slots_[*youngest].sequence->order) youngest = id;
  }
  return youngest;
}

}  // namespace tandem
