// The draft models of one pod: what each does, what is known of it, and how the canary fares.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_DRAFT_MODELS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_DRAFT_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/drafting/acceptance/model_choice.h"
#include "services/router/drafting/costs/draft_costs.h"
#include "services/router/drafting/draft_length_controller.h"
#include "services/router/drafting/roster/draft_roster.h"
#include "services/router/drafting/roster/speed_comparison.h"

namespace tandem {

// Each number has a controller, which plans the slots that draft with its model. The first one also
// plans drafts that were found, so there is one even if there is no draft model.
class DraftModels {
 public:
  // `num_models`: models that the pod begins with. `num_places`: models that there may be at once.
  DraftModels(const DraftLengthOptions& options, uint32_t num_models, uint32_t num_places);

  const DraftRoster& roster() const { return roster_; }
  // A trial ends with the role of its canary. What it has shown stays until the next trial.
  void SetRoster(const DraftRoster& roster);
  // The number gets another draft model. Choices of requests that were made before are made anew.
  void Forget(size_t number);
  // Grows with each Forget.
  uint64_t version() const { return version_; }

  size_t size() const { return controllers_.size(); }
  DraftLengthController& controller(size_t number = 0) { return *controllers_[number]; }
  const DraftLengthController& controller(size_t number = 0) const { return *controllers_[number]; }
  // What the verifier took counts for all of them.
  void ObserveVerify(const VerifyCost& cost);
  // No slot drafts.
  void ChooseNothing();
  // What the controllers chose last: a mean over the slots.
  DraftLengthController::LastRound last_round() const;

  // The choice of a request that begins in the pod, without a trial or an arm.
  ModelChoice NewChoice(AcceptanceMode mode) const;
  // The model that the next request of a mode tries; none: it tries no model. For requests that
  // choose among the models that serve.
  std::optional<size_t> NextToTry(AcceptanceMode mode);
  // Gives a request that chooses its model an arm, while the canary can draft.
  void ChooseArm(ModelChoice* choice) {
    choice->SetArm(roster_.ArmOf(num_compared_++), num_trials_);
  }
  uint64_t trial() const { return num_trials_; }
  // A request was decoded. Those of former trials do not count.
  void NoteSpeed(const ModelChoice& choice, double seconds_per_token) {
    comparison_.Add(choice.ArmIn(num_trials_), seconds_per_token);
  }
  const SpeedComparison& comparison() const { return comparison_; }
  // Attach.model of the canary that was compared last; empty: there was none.
  const std::string& compared() const { return compared_; }

 private:
  // The number has a model, or plans drafts that were found.
  bool IsUsed(size_t number) const;

  DraftRoster roster_;
  std::vector<std::unique_ptr<DraftLengthController>> controllers_;  // by number
  uint64_t version_ = 0;
  // Trials that began or ended. A trial lasts while a canary has its role.
  uint64_t num_trials_ = 0;
  uint64_t num_compared_ = 0;  // requests of this trial
  SpeedComparison comparison_;
  std::string compared_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_DRAFT_MODELS_H_
