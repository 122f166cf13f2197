#include "services/router/drafting/roster/folder_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxNameBytes = 128;

}  // namespace

absl::Status CheckFolderName(const char* field, const std::string& name, const char* folder_flag) {
  const bool has_strange = std::any_of(
      name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '/'; });
  if (!name.empty() && name.size() <= kMaxNameBytes && !has_strange && name != "." &&
      name != "..") {
    return absl::OkStatus();
  }
  return InvalidArgument(absl::StrCat(field, ": want the name of a folder in ", folder_flag,
                                      ", of 1 to ", kMaxNameBytes,
                                      " bytes, without a slash or a control character"));
}

}  // namespace tandem
