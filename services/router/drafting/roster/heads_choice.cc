#include "services/router/drafting/roster/heads_choice.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/drafting/roster/folder_name.h"

namespace tandem {
namespace {

constexpr size_t kMaxFormer = 16;

}  // namespace

absl::Status HeadsChoice::Swap(const std::string& heads, const std::string& present) {
  TANDEM_RETURN_IF_ERROR(CheckFolderName("heads", heads, "--heads-folder"));
  if (former_.size() == kMaxFormer) former_.erase(former_.begin());
  former_.push_back(wanted_.value_or(present));
  wanted_ = heads;
  ++num_changes_;
  return absl::OkStatus();
}

absl::Status HeadsChoice::RollBack(const std::string& swapped) {
  if (former_.empty()) {
    return FailedPrecondition(
        "there is no swap of heads to take back: none was made, or all were taken back");
  }
  if (!swapped.empty() && swapped != wanted_) {
    return FailedPrecondition(absl::StrCat("the heads ", *wanted_, " were asked for after ",
                                           swapped, ", so this swap cannot be taken back"));
  }
  wanted_ = former_.back();
  former_.pop_back();
  ++num_changes_;
  return absl::OkStatus();
}

}  // namespace tandem
