#include "services/router/engine/rounds/invariants.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// A worker never holds fewer rows than the router counts on. The verifier has no row of the pending
// token: that row is where the next token comes from.
std::string BrokenRows(const Slots& slots, PeerId id) {
  const WorkerPeer& peer = slots.peer(id);
  for (uint32_t slot_id = 0; slot_id < slots.size(); ++slot_id) {
    const WorkerSlot& held = peer.slot(slot_id);
    const Sequence* sequence = slots[slot_id].sequence.get();
    if (sequence == nullptr && !held.open && held.held_len == 0 && held.cached_len == 0) continue;
    const auto broken = [&](const char* what) {
      return absl::StrCat(PeerName(id), ", slot ", slot_id, ": ", what, " (", held.cached_len,
                          " rows of committed tokens, ", held.held_len, " rows in all)");
    };
    if (held.held_len < held.cached_len) return broken("holds fewer rows than are counted on");
    if (sequence == nullptr) {
      if (held.open) return broken("is open without a sequence");
      if (held.held_len > 0) return broken("holds rows without a sequence");
    } else if (!held.open && held.held_len > 0) {
      return broken("holds rows of a slot that was not opened");
    } else if (held.cached_len + (id == kVerifierPeer ? 1 : 0) > sequence->committed_len()) {
      return broken("holds more rows than there are tokens for it");
    } else if (held.open && peer.session() == 0) {
      return broken("is open without a session");
    }
  }
  return "";
}

// A cohort waits for a batch exactly while the batch is under way.
std::string BrokenStages(const RoundState& state) {
  for (uint32_t index = 0; index < state.cohorts.size(); ++index) {
    const Cohort& cohort = state.cohorts[index];
    const bool proposes = state.propose.has_value() && state.propose->cohort == index;
    const bool verifies = state.verify.has_value() && state.verify->cohort == index;
    if (proposes != (cohort.stage == Cohort::Stage::kProposing)) {
      return absl::StrCat("cohort ", index, ": its stage and the Propose under way disagree");
    }
    if (verifies != (cohort.stage == Cohort::Stage::kVerifying)) {
      return absl::StrCat("cohort ", index, ": its stage and the Verify under way disagree");
    }
  }
  return "";
}

// A batch under way belongs to the session whose caches the slots describe.
std::string BrokenSessions(const RoundState& state) {
  if (state.propose.has_value() &&
      state.propose->session != state.slots.peer(state.propose->peer).session()) {
    return "a Propose of a former session is under way";
  }
  if (state.verify.has_value() && state.verify->session != state.slots.verifier().session()) {
    return "a Verify of a former session is under way";
  }
  for (PeerId id = 0; id < state.slots.num_peers(); ++id) {
    if (state.slots.peer(id).session() != state.workers.ready_session(id)) {
      return absl::StrCat(PeerName(id), ": the slots describe a former session");
    }
  }
  return "";
}

}  // namespace

std::string BrokenInvariant(const RoundState& state) {
  for (PeerId id = 0; id < state.slots.num_peers(); ++id) {
    if (std::string broken = BrokenRows(state.slots, id); !broken.empty()) return broken;
  }
  if (std::string broken = BrokenStages(state); !broken.empty()) return broken;
  return BrokenSessions(state);
}

void AssertInvariants(const RoundState& state) {
  const std::string broken = BrokenInvariant(state);
  if (broken.empty()) return;
  (void)std::fprintf(stderr, "router: an invariant of the engine does not hold: %s\n",
                     broken.c_str());
  std::abort();
}

}  // namespace tandem
