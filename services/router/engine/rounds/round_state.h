// What the steps of a round share: the slots, the batches under way, and where results go.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_ROUND_STATE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_ROUND_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/router/audit/audit_monitor.h"
#include "services/router/drafting/costs/draft_costs.h"
#include "services/router/drafting/draft_length_controller.h"
#include "services/router/drafting/roster/draft_models.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/pod_output.h"
#include "services/router/engine/rounds/batches.h"
#include "services/router/engine/sessions/worker_sessions.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

// What an answered Propose took.
struct MeasuredPropose {
  PeerId peer = kDrafterPeer;
  std::vector<uint32_t> draft_lengths;
  std::vector<uint32_t> pass_rows;
  ProposeCost cost;  // draft_lengths and pass_rows of the cost are not set
};

// What the verifier's work takes, as measured lately.
struct VerifyStats {
  RunningMean decode_seconds;   // a Verify without prompts
  RunningMean propose_seconds;  // its own drafter, in a Verify that asks it
  uint32_t num_asking = 1;      // slots that asked it in the Verify that was answered last
  // What a row takes from all slots of its batch, in tokens of plain decoding. With one slot, that
  // is its time in plain rounds.
  double row_cost = kGuessedRowCost;
};

// A PodEngine owns one. The steps of a round are functions over it: propose.h, verify.h,
// deliver.h and rollback.h. Nothing else changes it. Planning and committing (propose_plan.h,
// verify_plan.h, commit.h) see its slots alone.
struct RoundState {
  RoundState(const EngineOptions& engine_options, const Tokenizer* tokenizer,
             EngineObserver* engine_observer, AuditMonitor* audit_monitor);

  const EngineOptions options;
  EngineObserver* const observer;
  AuditMonitor* const audit;

  PodOutput out;
  WorkerSessions workers;
  DraftModels draft_models;

  Slots slots;
  std::vector<Cohort> cohorts;
  uint32_t next_cohort = 0;             // cohort that is asked first
  std::optional<ProposeBatch> propose;  // under way; none: no drafter has a batch
  std::optional<VerifyBatch> verify;    // under way; none: the verifier has no batch
  // Cost of the last Propose. The controller learns it once the commands that follow are sent.
  std::optional<MeasuredPropose> measured_propose;

  VerifyStats verifier_times;
  double admit_at = 0;  // no sequence is placed before this time, after one found no page or slot
  uint32_t num_foreign_slots = 0;  // open slots of other routers at the verifier, as last reported
};

// The controller of one draft model.
inline DraftLengthController& ControllerOf(RoundState& state, PeerId drafter) {
  return state.draft_models.controller(DraftModelOf(drafter));
}
// The peer of the canary, if it can draft.
std::optional<PeerId> ReadyCanary(const RoundState& state);
// Gives up a proposal, and its entry of the log-prob ring.
void Release(RoundState& state, Proposal* proposal);
// Drops a worker's session because the worker answered what it must not answer.
void DropForBrokenRule(RoundState& state, PeerId peer, const absl::Status& rule, double now);
// The verifier's last report of open slots, of all routers.
void NoteOpenSlots(RoundState& state, uint32_t num_open);

// Rows of a prompt that take about EngineOptions::step_seconds, less the seconds that are taken.
// `seconds_per_row` 0: not known yet.
uint32_t RowsWithinStep(const EngineOptions& options, double seconds_per_row,
                        double taken_seconds = 0);
// Positions that `rows` rows from `begin` on attend to, summed over these rows.
double Attended(uint32_t begin, uint32_t rows);

// Smallest prompt chunk while other slots decode. A smaller chunk costs more in extra passes than
// it saves in waiting time.
inline constexpr uint32_t kMinChunkRows = 32;
// Prompt chunk while the cost of a row is not known yet.
inline constexpr uint32_t kFirstChunkRows = 64;

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_ROUND_STATE_H_
