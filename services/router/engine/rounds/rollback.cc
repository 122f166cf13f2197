#include "services/router/engine/rounds/rollback.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

// Whether a proposal of the peer's current session for this slot waits for its verdict.
bool AwaitsVerdict(const RoundState& state, const WorkerPeer& peer, uint32_t slot_id) {
  const auto waits = [&](const Proposal& proposal) {
    return proposal.session == peer.session() &&
           state.slots.Find(slot_id, proposal.serial) != nullptr;
  };
  for (const Cohort& cohort : state.cohorts) {
    if (slot_id < cohort.proposals.size() && waits(cohort.proposals[slot_id])) return true;
  }
  if (!state.verify.has_value()) return false;
  const auto& items = state.verify->items;
  return std::any_of(items.begin(), items.end(), [&](const VerifyBatch::Item& item) {
    return item.slot == slot_id && waits(item.proposal);
  });
}

}  // namespace

std::vector<uint32_t> DueRollbacks(const RoundState& state, PeerId id) {
  std::vector<uint32_t> due;
  // The verifier drops the rows of rejected tokens itself.
  if (id == kVerifierPeer) return due;
  const WorkerPeer& peer = state.slots.peer(id);
  for (uint32_t slot_id = 0; slot_id < state.slots.size(); ++slot_id) {
    if (peer.num_extra_rows(slot_id) > 0 && !AwaitsVerdict(state, peer, slot_id)) {
      due.push_back(slot_id);
    }
  }
  return due;
}

std::optional<v1::UpdateSlots> TakeUpdates(RoundState& state, PeerId id, bool rides) {
  WorkerPeer& peer = state.slots.peer(id);
  v1::UpdateSlots updates;
  for (const uint32_t slot_id : DueRollbacks(state, id)) {
    if (!rides && peer.num_extra_pages(slot_id) == 0) continue;
    const uint32_t num_rows = peer.num_extra_rows(slot_id);
    *updates.add_rollbacks() = peer.RollBack(slot_id, *state.slots[slot_id].sequence);
    ++state.out.counts.rollbacks[KindOf(id)];
    state.out.counts.rolled_back_rows[KindOf(id)] += num_rows;
    if (!state.options.debug_lines) continue;
    state.out.LogSlot(
        state.slots, LogLine::Level::kDebug, slot_id,
        absl::StrCat(PeerName(id), ": rolls slot ", slot_id, ", epoch ", peer.slot(slot_id).epoch,
                     ", back by ", num_rows, " rows to ", peer.slot(slot_id).cached_len),
        /*summary=*/{}, id);
  }
  peer.TakeCloses(&updates);
  if (updates.rollbacks().empty() && updates.closes().empty()) return std::nullopt;
  return updates;
}

void SendUpdates(RoundState& state, PeerId id) {
  if (!state.workers.ready(id)) return;
  std::optional<v1::UpdateSlots> updates = TakeUpdates(state, id, /*rides=*/false);
  if (!updates.has_value()) return;
  const auto send = [&](auto command) {
    command.command.set_id(state.workers.NextCommandId());
    *command.command.mutable_update_slots() = *std::move(updates);
    state.out.commands.push_back(std::move(command));
  };
  if (id == kVerifierPeer) {
    send(SendToVerifier{state.slots.peer(id).session(), {}});
  } else {
    send(SendToDrafter{state.slots.peer(id).session(), {}});
  }
}

absl::Status CheckRollbacks(const RoundState& state, PeerId id, const v1::UpdateSlotsReply& reply) {
  for (const v1::SlotState& slot : reply.rollbacks()) {
    if (slot.slot() >= state.slots.size()) {
      return Internal(
          absl::StrCat("answered a rollback of slot ", slot.slot(), " of ", state.slots.size()));
    }
    TANDEM_RETURN_IF_ERROR(state.slots.peer(id).CheckRolledBack(slot));
  }
  return absl::OkStatus();
}

void TakeRollbacks(RoundState& state, PeerId id, const v1::UpdateSlotsReply& reply) {
  for (const v1::SlotState& slot : reply.rollbacks()) {
    const Sequence* sequence = state.slots[slot.slot()].sequence.get();
    if (sequence == nullptr) continue;  // canceled or preempted meanwhile
    state.slots.peer(id).OnRolledBack(slot, *sequence);
  }
}

}  // namespace tandem
