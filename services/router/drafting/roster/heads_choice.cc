#include "services/router/drafting/roster/heads_choice.h"

#include <utility>

#include "common/status.h"
#include "services/router/drafting/roster/folder_name.h"

namespace tandem {

absl::Status HeadsChoice::Swap(const std::string& heads) {
  TANDEM_RETURN_IF_ERROR(CheckFolderName("heads", heads, "--heads-folder"));
  if (wanted_ != heads) {
    former_ = wanted_.value_or("");  // the verifiers began with those
    wanted_ = heads;
  }
  ++num_changes_;
  return absl::OkStatus();
}

absl::Status HeadsChoice::RollBack() {
  if (!former_.has_value()) {
    return FailedPrecondition(
        "there is no swap of heads to take back: none was made, or it was taken back already");
  }
  wanted_ = std::exchange(former_, std::nullopt);
  ++num_changes_;
  return absl::OkStatus();
}

}  // namespace tandem
