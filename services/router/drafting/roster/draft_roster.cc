#include "services/router/drafting/roster/draft_roster.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {

DraftRoster::DraftRoster(uint32_t num_models) {
  for (size_t i = 0; i < std::min<size_t>(num_models, places_.size()); ++i) {
    places_[i].role = DraftRole::kServing;
  }
}

size_t DraftRoster::CountWith(DraftRole role) const {
  return static_cast<size_t>(
      std::count_if(places_.begin(), places_.end(),
                    [role](const DraftPlace& place) { return place.role == role; }));
}

std::optional<size_t> DraftRoster::First(DraftRole role) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].role == role) return i;
  }
  return std::nullopt;
}

absl::StatusOr<size_t> DraftRoster::Load(const std::string& folder, double share) {
  if (!(share > 0 && share <= 1)) {
    return InvalidArgument(
        absl::StrCat("share: got ", share, ", want a number above 0 and at most 1"));
  }
  if (folder.empty()) return InvalidArgument("model: got an empty name");
  if (size() == 0) {
    return FailedPrecondition("this server has no draft worker that could load a model");
  }
  for (const DraftPlace& place : places_) {
    if (place.role != DraftRole::kAbsent && place.folder == folder) {
      return absl::AlreadyExistsError(absl::StrCat("\"", folder, "\" is loaded already"));
    }
  }
  if (canary().has_value()) {
    return FailedPrecondition(
        "there is a canary already: promote it or unload it before another one is loaded");
  }
  const std::optional<size_t> free = First(DraftRole::kAbsent);
  if (!free.has_value()) {
    return ResourceExhausted(absl::StrCat("there are ", kMaxDraftModels,
                                          " draft models, which is the most: unload one first"));
  }
  places_[*free] = {DraftRole::kCanary, folder};
  canary_share_ = share;
  return *free;
}

absl::Status DraftRoster::Promote() {
  const std::optional<size_t> promoted = canary();
  if (!promoted.has_value()) return FailedPrecondition("there is no canary to promote");
  for (DraftPlace& place : places_) {
    if (place.role == DraftRole::kServing) place.role = DraftRole::kStandby;
  }
  places_[*promoted].role = DraftRole::kServing;
  return absl::OkStatus();
}

absl::Status DraftRoster::RollBack() {
  if (CountWith(DraftRole::kStandby) == 0) {
    return FailedPrecondition("no draft model stands by, so there is nothing to roll back to");
  }
  for (DraftPlace& place : places_) {
    if (place.role == DraftRole::kServing) {
      place.role = DraftRole::kStandby;
    } else if (place.role == DraftRole::kStandby) {
      place.role = DraftRole::kServing;
    }
  }
  return absl::OkStatus();
}

absl::Status DraftRoster::Unload(size_t number) {
  if (places_[number].role == DraftRole::kServing && CountWith(DraftRole::kServing) == 1) {
    return FailedPrecondition(
        "no other draft model serves: promote a canary or roll back before this one is unloaded");
  }
  places_[number] = {};
  return absl::OkStatus();
}

DraftArm DraftRoster::ArmOf(uint32_t request) const {
  if (!canary().has_value()) return DraftArm::kNone;
  // The k-th request of the canary is the one with which k / share requests are reached.
  const double share = canary_share_;
  const bool is_next = std::floor((request + 1.0) * share) > std::floor(request * share);
  return is_next ? DraftArm::kCanary : DraftArm::kServing;
}

}  // namespace tandem
