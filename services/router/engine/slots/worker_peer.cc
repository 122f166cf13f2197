#include "services/router/engine/slots/worker_peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {

void WorkerPeer::Attach(SessionId session, const v1::AttachReply& info) {
  session_ = session;
  pages_.Attached(info.page_tokens(), info.num_pages());
}

void WorkerPeer::Lose() {
  session_ = 0;
  closes_.clear();
  for (WorkerSlot& slot : slots_) {
    slot.open = false;
    slot.cached_len = 0;
    slot.held_len = 0;
  }
}

size_t WorkerPeer::num_open_slots() const {
  const auto num_open =
      std::count_if(slots_.begin(), slots_.end(), [](const WorkerSlot& slot) { return slot.open; });
  return closes_.size() + static_cast<size_t>(num_open);
}

void WorkerPeer::BeginLife(uint32_t id) {
  WorkerSlot& slot = slots_[id];
  ++slot.epoch;
  slot.open = false;
  slot.cached_len = 0;
  slot.held_len = 0;
}

void WorkerPeer::Close(uint32_t id) {
  WorkerSlot& slot = slots_[id];
  if (!std::exchange(slot.open, false)) return;
  v1::SlotClose& close = closes_.emplace_back();
  close.set_slot(id);
  close.set_slot_epoch(slot.epoch);
  pages_.CloseQueued(slot.held_len);
  slot.cached_len = 0;
  slot.held_len = 0;
}

void WorkerPeer::TakeCloses(v1::UpdateSlots* update) {
  if (closes_.empty()) return;
  update->mutable_closes()->Assign(closes_.begin(), closes_.end());
  closes_.clear();
  pages_.ClosesSent();
}

v1::SlotPoint WorkerPeer::NextPoint(uint32_t id, const Sequence& sequence) {
  WorkerSlot& slot = slots_[id];
  v1::SlotPoint point;
  point.set_slot(id);
  point.set_slot_epoch(slot.epoch);
  point.set_command_number(++slot.command_number);
  point.set_length(slot.cached_len);
  point.set_prefix_hash(sequence.prefix_hash(slot.cached_len));
  return point;
}

bool WorkerPeer::Open(uint32_t id) { return !std::exchange(slots_[id].open, true); }

void WorkerPeer::Hold(uint32_t id, uint32_t cached_len, uint32_t held_len) {
  slots_[id].cached_len = cached_len;
  slots_[id].held_len = held_len;
}

void WorkerPeer::CommitRows(uint32_t id, uint32_t num_rows) {
  slots_[id].cached_len += std::min(num_rows, num_extra_rows(id));
}

void WorkerPeer::Resynchronize(const v1::SlotState& state, const Sequence& sequence) {
  WorkerSlot& slot = slots_[state.slot()];
  slot.command_number = std::max(slot.command_number, state.command_number());
  if (state.slot_epoch() != slot.epoch) {
    slot.open = false;
    slot.cached_len = 0;
    slot.held_len = 0;
    if (state.slot_epoch() > slot.epoch) slot.epoch = state.slot_epoch() + 1;
    return;
  }
  slot.held_len = state.cached_len();
  const bool is_known = state.cached_len() <= sequence.committed_len() &&
                        state.prefix_hash() == sequence.prefix_hash(state.cached_len());
  slot.cached_len = is_known ? std::min(state.cached_len(), sequence.most_rows()) : 0;
}

int64_t WorkerPeer::num_extra_pages(uint32_t id) const {
  return pages_.PagesOf(slots_[id].held_len) - pages_.PagesOf(slots_[id].cached_len);
}

v1::SlotPoint WorkerPeer::RollBack(uint32_t id, const Sequence& sequence) {
  WorkerSlot& slot = slots_[id];
  pages_.RollbackSent(num_extra_pages(id));
  slot.held_len = slot.cached_len;
  v1::SlotPoint point = NextPoint(id, sequence);
  slot.rollback_number = point.command_number();
  return point;
}

bool WorkerPeer::AnswersNewest(const v1::SlotState& state) const {
  const WorkerSlot& slot = slots_[state.slot()];
  return slot.open && slot.rollback_number == slot.command_number &&
         slot.rollback_number == state.command_number();
}

absl::Status WorkerPeer::CheckRolledBack(const v1::SlotState& state) const {
  const WorkerSlot& slot = slots_[state.slot()];
  if (!AnswersNewest(state) || state.code() != v1::WORKER_CODE_OK ||
      state.cached_len() == slot.cached_len) {
    return absl::OkStatus();
  }
  return Internal(
      absl::StrCat("holds ", state.cached_len(), " rows after a rollback to ", slot.cached_len));
}

void WorkerPeer::OnRolledBack(const v1::SlotState& state, const Sequence& sequence) {
  if (!AnswersNewest(state) || state.code() == v1::WORKER_CODE_OK) return;
  Resynchronize(state, sequence);
  // The slot's next command says how many rows it must hold. A second rollback would be refused
  // like the first.
  WorkerSlot& slot = slots_[state.slot()];
  slot.held_len = slot.cached_len;
}

}  // namespace tandem
