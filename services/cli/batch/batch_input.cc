#include "services/cli/batch/batch_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem::cli {

absl::StatusOr<std::unique_ptr<BatchInput>> BatchInput::Open(const std::string& path) {
  std::error_code ignored;
  std::ifstream lines(path, std::ios::binary);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return InvalidArgument("FILE: cannot open " + path + ": " + std::strerror(errno));
  }
  std::unique_ptr<BatchInput> input(new BatchInput(file));
  if (!lines || !std::filesystem::is_regular_file(path, ignored)) {
    return InvalidArgument("FILE: cannot read " + path + " as a file of lines");
  }
  std::unordered_map<std::string, int64_t> numbers;  // by custom_id
  std::string text;
  int64_t number = 0;
  int64_t offset = 0;
  while (std::getline(lines, text)) {
    ++number;
    const int64_t begin = offset;
    offset += static_cast<int64_t>(text.size()) + 1;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto line = ParseBatchLine(text);
    if (!line.ok()) {
      input->problems_.push_back({number, std::string(line.status().message())});
      continue;
    }
    const auto [first, is_new] = numbers.emplace(line->custom_id, number);
    if (!is_new) {
      input->problems_.push_back(
          {number, absl::StrCat("custom_id: \"", line->custom_id, "\" is that of line ",
                                first->second, ", and only that line is sent")});
      continue;
    }
    input->entries_.push_back({number, begin, text.size(), line->custom_id});
  }
  return input;
}

BatchInput::~BatchInput() {
  if (file_ >= 0) close(file_);
}

absl::StatusOr<BatchLine> BatchInput::Read(const Entry& entry) const {
  std::string text(entry.size, '\0');
  const ssize_t size = pread(file_, text.data(), text.size(), entry.offset);
  auto line = ParseBatchLine(text);
  if (size != static_cast<ssize_t>(text.size()) || !line.ok() ||
      line->custom_id != entry.custom_id) {
    return FailedPrecondition(
        absl::StrCat("the file changed: line ", entry.number, " is not what it was at the start"));
  }
  return line;
}

}  // namespace tandem::cli
