#include "services/cli/terminal/text_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/cli/terminal/utf8.h"

namespace tandem::cli {

absl::StatusOr<std::string> ReadTextFile(const std::string& option, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgument(absl::StrCat(option, ": ", path, " is a folder, and a file is wanted"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument(absl::StrCat(option, ": cannot read ", path));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) return InvalidArgument(absl::StrCat(option, ": ", path, " is empty"));
  if (const size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    return InvalidArgument(
        absl::StrCat(option, ": byte ", valid, " of ", path, " is not valid UTF-8"));
  }
  return text;
}

}  // namespace tandem::cli
