// The rollbacks of slots: when a drafter is told to drop rows of draft tokens, and how.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/router/engine/engine.h"

namespace tandem {

std::vector<uint32_t> Engine::DueRollbacks(PeerId id) const {
  std::vector<uint32_t> due;
  // The verifier drops the rows of rejected tokens itself.
  if (id == kVerifierPeer) return due;
  const WorkerPeer& peer = peers_[id];
  for (uint32_t slot_id = 0; slot_id < slots_.size(); ++slot_id) {
    if (peer.num_extra_rows(slot_id) > 0) due.push_back(slot_id);
  }
  if (due.empty()) return due;
  const std::vector<bool> awaiting = AwaitingVerdict(peer);
  std::erase_if(due, [&](uint32_t slot_id) { return awaiting[slot_id]; });
  return due;
}

std::vector<bool> Engine::AwaitingVerdict(const WorkerPeer& peer) const {
  std::vector<bool> awaiting(slots_.size());
  const auto note = [&](uint32_t slot_id, const Draft& draft) {
    const Sequence* sequence = slots_[slot_id].sequence.get();
    if (sequence == nullptr || draft.serial != sequence->serial) return;
    if (draft.session == peer.session()) awaiting[slot_id] = true;
  };
  for (const Cohort& cohort : cohorts_) {
    for (uint32_t slot_id = 0; slot_id < cohort.drafts.size(); ++slot_id) {
      note(slot_id, cohort.drafts[slot_id]);
    }
  }
  if (!verify_.has_value()) return awaiting;
  for (const VerifyBatch::Item& item : verify_->items) note(item.slot, item.draft);
  return awaiting;
}

std::optional<v1::UpdateSlots> Engine::TakeUpdates(PeerId id, bool rides) {
  WorkerPeer& peer = peers_[id];
  v1::UpdateSlots updates;
  for (uint32_t slot_id : DueRollbacks(id)) {
    if (!rides && peer.num_extra_pages(slot_id) == 0) continue;
    const uint32_t num_rows = peer.num_extra_rows(slot_id);
    *updates.add_rollbacks() = peer.RollBack(slot_id, *slots_[slot_id].sequence);
    ++counts_.rollbacks[KindOf(id)];
    counts_.rolled_back_rows[KindOf(id)] += num_rows;
    LogSlot(LogLine::Level::kDebug, slot_id,
            absl::StrCat(WorkerName(KindOf(id)), ": rolls slot ", slot_id, ", epoch ",
                         peer.slot(slot_id).epoch, ", back by ", num_rows, " rows to ",
                         peer.slot(slot_id).cached_len));
  }
  peer.TakeCloses(&updates);
  if (updates.rollbacks().empty() && updates.closes().empty()) return std::nullopt;
  return updates;
}

void Engine::SendUpdates(PeerId id) {
  if (!workers_.ready(id)) return;
  std::optional<v1::UpdateSlots> updates = TakeUpdates(id, /*rides=*/false);
  if (!updates.has_value()) return;
  const auto send = [&](auto command) {
    command.command.set_id(workers_.NextCommandId());
    *command.command.mutable_update_slots() = *std::move(updates);
    commands_.push_back(std::move(command));
  };
  if (id == kVerifierPeer) {
    send(SendToVerifier{peers_[id].session(), {}});
  } else {
    send(SendToDrafter{peers_[id].session(), {}});
  }
}

std::string Engine::TakeRollbacks(PeerId id, const v1::UpdateSlotsReply& reply) {
  for (const v1::SlotState& state : reply.rollbacks()) {
    if (state.slot() >= slots_.size()) {
      return absl::StrCat("answered a rollback of slot ", state.slot(), " of ", slots_.size());
    }
    const Sequence* sequence = slots_[state.slot()].sequence.get();
    if (sequence == nullptr) continue;  // cancelled or preempted meanwhile
    const absl::Status status = peers_[id].OnRolledBack(state, *sequence);
    if (!status.ok()) return std::string(status.message());
  }
  return "";
}

}  // namespace tandem
