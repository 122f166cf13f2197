// Which draft model drafts for one request, and what its drafts of each model have shown.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_MODEL_CHOICE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_MODEL_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/drafting/acceptance/trial_schedule.h"
#include "services/router/drafting/roster/draft_roster.h"

namespace tandem {

// Owned by a sequence. It depends on committed tokens, on costs and on acceptance alone, never on
// draft tokens that nobody judged (docs/sampling.md).
class ModelChoice {
 public:
  // One estimate and one schedule for each draft model, and one of each if there is none.
  ModelChoice(std::vector<AcceptanceEstimate> estimates, std::vector<TrialSchedule> trials)
      : estimates_(std::move(estimates)), trials_(std::move(trials)) {}

  // The arm of the request in a trial of a canary (DraftModels), which is chosen where the request
  // begins in a pod. In other trials it has none.
  void SetArm(DraftArm arm, uint64_t trial) {
    arm_ = arm;
    trial_ = trial;
  }
  DraftArm ArmIn(uint64_t trial) const { return trial == trial_ ? arm_ : DraftArm::kNone; }
  void KeepArmOf(const ModelChoice& former) { SetArm(former.arm_, former.trial_); }
  // DraftModels::version of the models that the estimates belong to.
  uint64_t version() const { return version_; }
  void set_version(uint64_t version) { version_ = version; }

  size_t size() const { return estimates_.size(); }
  AcceptanceEstimate& estimate(size_t model) { return estimates_[model]; }
  const AcceptanceEstimate& estimate(size_t model) const { return estimates_[model]; }
  // The number has another model. Nothing is known of its drafts yet.
  void Renew(size_t model, const AcceptanceEstimate& estimate, const TrialSchedule& trials) {
    estimates_[model] = estimate;
    trials_[model] = trials;
  }
  // The model that was chosen last.
  size_t current() const { return current_; }

  // Lets the request begin with this model, whatever is expected of it, until some of its drafts
  // were judged. Without such trials, nobody would notice that a model has become better, or suits
  // some requests better than it suits most of them.
  void Try(size_t model) {
    tried_ = model;
    trial_drafts_left_ = kTrialDrafts;
    trial_rounds_left_ = kMostTrialRounds;
  }
  // The model that Choose returned last is tried.
  bool is_trial() const { return is_trial_; }
  // A draft of this model was judged.
  void OnJudged(size_t model) {
    if (model == tried_ && trial_drafts_left_ > 0) --trial_drafts_left_;
    // A turn has shown something new only if the model is expected to be worth more now, and then
    // it drafts without turns. So turns become rarer, whatever was accepted.
    if (trials_[model].is_trial()) trials_[model].OnJudged(/*succeeded=*/false);
  }

  // A draft was found that is expected to be worth more than one of this model, which could draft
  // too. Returns true if the model is to draft nevertheless: where something is found at every
  // place, nobody would know what its drafts are worth. A model that drafts at other places is
  // known, and needs no trial. OnTurn comes next.
  bool IsDueBesideFound(size_t model, uint32_t num_slots) {
    return estimates_[model].rounds_without_draft() >= kUnknownAfterRounds &&
           trials_[model].IsDue(num_slots);
  }
  // The model that was due drafts in this round, or cannot.
  void OnTurn(size_t model, bool drafts) { trials_[model].OnTrial(drafts); }

  // Chooses the model with the largest worth. `worths`: for each model the tokens that its draft is
  // expected to give in this round, less those that plain decoding would give in its time; none: it
  // cannot draft. A model other than the last one must be worth kLeastAdvantage more. Returns none
  // if no model can draft.
  std::optional<size_t> Choose(std::span<const std::optional<double>> worths);

 private:
  static constexpr uint32_t kTrialDrafts = 6;
  // Rounds after which a trial ends in any case: the model may never catch up with the text.
  static constexpr uint32_t kMostTrialRounds = 64;
  static constexpr uint32_t kUnknownAfterRounds = 8;
  // Tokens a round. Estimates differ by as much from one round to the next.
  static constexpr double kLeastAdvantage = 0.05;

  std::vector<AcceptanceEstimate> estimates_;
  std::vector<TrialSchedule> trials_;
  DraftArm arm_ = DraftArm::kNone;
  uint64_t trial_ = 0;
  uint64_t version_ = 0;
  size_t current_ = 0;
  size_t tried_ = 0;
  bool is_trial_ = false;
  uint32_t trial_drafts_left_ = 0;
  uint32_t trial_rounds_left_ = 0;
};

// Which model is tried by the n-th request of a mode, counted from 0. None: the request tries no
// model. One of kRequestsPerModelTrial requests tries one, and the models take turns. With a single
// model there is nothing to try.
inline constexpr uint32_t kRequestsPerModelTrial = 8;
std::optional<size_t> ModelToTry(uint32_t request, size_t num_models);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_MODEL_CHOICE_H_
