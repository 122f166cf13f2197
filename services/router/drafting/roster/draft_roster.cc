#include "services/router/drafting/roster/draft_roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/drafting/drafter_set.h"
#include "services/router/drafting/roster/folder_name.h"

namespace tandem {
namespace {

absl::Status CheckName(const std::string& name) {
  TANDEM_RETURN_IF_ERROR(CheckFolderName("model", name, "--draft-folder"));
  if (name == "none" || FindDrafter(name).has_value()) {
    return InvalidArgument(absl::StrCat("model: \"", name,
                                        "\" is the name of a kind of drafter, so requests could "
                                        "not name the model; rename its folder"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status IsLoadedAlready(const std::string& name) {
  return absl::AlreadyExistsError(absl::StrCat("a draft model \"", name, "\" is there already"));
}

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

double DraftRoster::ShareOf(size_t number) const {
  switch (places_[number].role) {
    case DraftRole::kCanary:
      return canary_share();
    case DraftRole::kServing:
      return 1 - canary_share();
    case DraftRole::kStandby:
    case DraftRole::kAbsent:
      break;
  }
  return 0;
}

absl::StatusOr<size_t> DraftRoster::Load(const std::string& folder, double share) {
  if (!(share > 0 && share <= 1)) {
    return InvalidArgument(
        absl::StrCat("share: got ", share, ", want a number above 0 and at most 1"));
  }
  TANDEM_RETURN_IF_ERROR(CheckName(folder));
  if (size() == 0) {
    return FailedPrecondition("this server has no draft worker that could load a model");
  }
  for (const DraftPlace& place : places_) {
    if (place.role != DraftRole::kAbsent && place.folder == folder) {
      return IsLoadedAlready(folder);
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

void DraftRoster::Serve(const std::array<bool, kMaxDraftModels>& serving) {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (serving[i]) {
      places_[i].role = DraftRole::kServing;
    } else if (places_[i].role == DraftRole::kServing) {
      places_[i].role = DraftRole::kStandby;
    }
  }
}

absl::Status DraftRoster::Promote() {
  const std::optional<size_t> promoted = canary();
  if (!promoted.has_value()) return FailedPrecondition("there is no canary to promote");
  for (size_t i = 0; i < places_.size(); ++i) {
    former_[i] = places_[i].role == DraftRole::kServing;
  }
  std::array<bool, kMaxDraftModels> serving = {};
  serving[*promoted] = true;
  Serve(serving);
  return absl::OkStatus();
}

absl::Status DraftRoster::RollBack() {
  // A command that is repeated must not bring the promoted model back.
  const std::array<bool, kMaxDraftModels> serving = std::exchange(former_, {});
  if (std::find(serving.begin(), serving.end(), true) == serving.end()) {
    return FailedPrecondition(
        "there is no promotion to take back: none was made, it was taken back already, or the "
        "models that served before it were unloaded");
  }
  Serve(serving);
  return absl::OkStatus();
}

absl::Status DraftRoster::Unload(size_t number) {
  if (places_[number].role == DraftRole::kServing && CountWith(DraftRole::kServing) == 1) {
    return FailedPrecondition(
        "no other draft model serves, and a server keeps one that does: load another one and "
        "promote it first");
  }
  places_[number] = {};
  former_[number] = false;
  return absl::OkStatus();
}

DraftArm DraftRoster::ArmOf(uint64_t request) const {
  if (!canary().has_value()) return DraftArm::kNone;
  // The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
  uint64_t hash = (request + 1) * 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  hash ^= hash >> 31;
  const double uniform = static_cast<double>(hash >> 11) * 0x1p-53;
  return uniform < canary_share_ ? DraftArm::kCanary : DraftArm::kServing;
}

}  // namespace tandem
