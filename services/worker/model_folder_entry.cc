#include "services/worker/model_folder_entry.h"

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

// Models that a message names at most.
constexpr size_t kMostNames = 12;

// The names of the folders that hold a model, in their order.
std::vector<std::string> ModelsIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (!fs::exists(entry->path() / "config.json", ignored)) continue;
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<fs::path> ModelInFolder(const fs::path& folder, const std::string& name) {
  const bool is_name = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_name) {
    return InvalidArgument(absl::StrCat(
        "got \"", name, "\", want the name of a folder in --draft-folder, without a slash"));
  }
  std::error_code ignored;
  if (fs::is_directory(folder / name, ignored)) return folder / name;
  std::vector<std::string> names = ModelsIn(folder);
  const bool has_more = names.size() > kMostNames;
  if (has_more) names.resize(kMostNames);
  return FailedPrecondition(absl::StrCat(
      "\"", name, "\" is not in --draft-folder, which ",
      names.empty() ? "holds no model"
                    : absl::StrCat("holds ", absl::StrJoin(names, ", "), has_more ? ", …" : "")));
}

}  // namespace tandem
