#include "services/router/drafting/roster/draft_models.h"

#include <algorithm>
#include <utility>

namespace tandem {

DraftModels::DraftModels(const DraftLengthOptions& options, uint32_t num_models,
                         uint32_t num_places)
    : roster_(num_models) {
  for (uint32_t i = 0; i < std::max(num_places, 1U); ++i) {
    controllers_.push_back(std::make_unique<DraftLengthController>(options));
  }
}

void DraftModels::SetRoster(const DraftRoster& roster) {
  const bool has_other_canary = roster.canary() != roster_.canary();
  roster_ = roster;
  if (!has_other_canary) return;
  ++num_trials_;
  if (!roster_.canary().has_value()) return;
  num_compared_ = 0;
  comparison_ = {};
  compared_ = roster_.place(*roster_.canary()).folder;
}

void DraftModels::Forget(size_t number) {
  ++version_;
  controllers_[number]->BeginDrafter(*controllers_.front());
}

bool DraftModels::IsUsed(size_t number) const { return number == 0 || roster_.has(number); }

void DraftModels::ObserveVerify(const VerifyCost& cost) {
  for (size_t i = 0; i < controllers_.size(); ++i) {
    if (IsUsed(i)) controllers_[i]->ObserveVerify(cost);
  }
}

void DraftModels::ChooseNothing() {
  for (size_t i = 0; i < controllers_.size(); ++i) {
    if (IsUsed(i)) controllers_[i]->ChooseNothing();
  }
}

DraftLengthController::LastRound DraftModels::last_round() const {
  DraftLengthController::LastRound mean = controllers_.front()->last_round();
  for (size_t i = 1; i < controllers_.size(); ++i) {
    const DraftLengthController::LastRound& one = controllers_[i]->last_round();
    if (one.num_slots == 0 || !IsUsed(i)) continue;
    mean.num_slots += one.num_slots;
    const double share = static_cast<double>(one.num_slots) / mean.num_slots;
    mean.mean_length += share * (one.mean_length - mean.mean_length);
    mean.plain_seconds += share * (one.plain_seconds - mean.plain_seconds);
    mean.gain += share * (one.gain - mean.gain);
  }
  return mean;
}

ModelChoice DraftModels::NewChoice(AcceptanceMode mode) const {
  std::vector<AcceptanceEstimate> estimates;
  std::vector<TrialSchedule> trials;
  for (const auto& controller : controllers_) {
    estimates.push_back(controller->NewEstimate(mode));
    trials.push_back(controller->NewTrials(mode));
  }
  ModelChoice choice(std::move(estimates), std::move(trials));
  choice.set_version(version_);
  return choice;
}

std::optional<size_t> DraftModels::NextToTry(AcceptanceMode mode) {
  std::vector<size_t> serving;
  for (size_t number = 0; number < kMaxDraftModels; ++number) {
    if (roster_.place(number).role == DraftRole::kServing) serving.push_back(number);
  }
  const uint32_t request = controllers_.front()->CountRequest(mode);
  const std::optional<size_t> index = ModelToTry(request, serving.size());
  return index.has_value() ? std::optional(serving[*index]) : std::nullopt;
}

}  // namespace tandem
