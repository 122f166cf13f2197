#include "services/router/engine/rounds/round_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

DraftLengthOptions ControllerOptions(const EngineOptions& options) {
  DraftLengthOptions controller;
  controller.max_length = options.workers.max_draft_length;
  controller.initial_length = std::min(controller.initial_length, controller.max_length);
  return controller;
}

}  // namespace

RoundState::RoundState(const EngineOptions& engine_options, const Tokenizer* tokenizer,
                       EngineObserver* engine_observer, AuditMonitor* audit_monitor)
    : options(engine_options),
      observer(engine_observer),
      audit(audit_monitor),
      workers(options.workers, tokenizer, &out.commands, &out.counts, observer),
      draft_models(ControllerOptions(options), options.workers.num_drafters,
                   NumDraftPlaces(options.workers)),
      slots(NumDraftPlaces(options.workers)),
      cohorts(options.num_cohorts) {}

std::optional<PeerId> ReadyCanary(const RoundState& state) {
  const std::optional<size_t> canary = state.draft_models.roster().canary();
  if (!canary.has_value()) return std::nullopt;
  const PeerId peer = kDrafterPeer + static_cast<PeerId>(*canary);
  return state.workers.ready(peer) ? std::optional(peer) : std::nullopt;
}

void Release(RoundState& state, Proposal* proposal) {
  if (proposal->ring.has_value()) state.workers.ring(proposal->peer).Release(*proposal->ring);
  *proposal = Proposal();
}

void DropForBrokenRule(RoundState& state, PeerId peer, const absl::Status& rule, double now) {
  state.workers.Drop(peer, SessionChange::kProtocolError,
                     absl::StrCat("the worker broke the protocol: ", rule.message()), now);
}

void NoteOpenSlots(RoundState& state, uint32_t num_open) {
  const auto own = static_cast<uint32_t>(state.slots.verifier().num_open_slots());
  state.num_foreign_slots = num_open - std::min(own, num_open);
}

uint32_t RowsWithinStep(const EngineOptions& options, double seconds_per_row,
                        double taken_seconds) {
  if (seconds_per_row <= 0) return kFirstChunkRows;
  const double rows = (options.step_seconds - taken_seconds) / seconds_per_row;
  return static_cast<uint32_t>(std::clamp(rows, double{kMinChunkRows}, 1e6));
}

double Attended(uint32_t begin, uint32_t rows) { return rows * (begin + 0.5 * (rows + 1)); }

}  // namespace tandem
