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

}  // namespace

std::string NameOfFolder(const fs::path& path) {
  const fs::path folder = path.lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

std::vector<std::string> ModelsIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (!fs::exists(entry->path() / "config.json", ignored)) continue;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.')) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<fs::path> FindInFolder(const ModelFolder& folder, const std::string& name) {
  const bool is_name = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_name) {
    return InvalidArgument(absl::StrCat("got \"", name, "\", want the name of a folder in ",
                                        folder.flag, ", without a slash"));
  }
  std::error_code ignored;
  if (fs::is_directory(folder.path / name, ignored)) return folder.path / name;
  std::vector<std::string> names = ModelsIn(folder.path);
  const bool has_more = names.size() > kMostNames;
  if (has_more) names.resize(kMostNames);
  return FailedPrecondition(absl::StrCat(
      "\"", name, "\" is not in ", folder.flag, ", which ",
      names.empty() ? absl::StrCat("holds no ", folder.contents)
                    : absl::StrCat("holds ", absl::StrJoin(names, ", "), has_more ? ", …" : "")));
}

}  // namespace tandem
