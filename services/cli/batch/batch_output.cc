#include "services/cli/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/cli/batch/batch_line.h"

namespace tandem::cli {

namespace {

constexpr std::chrono::seconds kSyncPeriod{1};

absl::Status WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(file, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Unavailable(std::string("--output: ") + std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(size));
  }
  return absl::OkStatus();
}

int OpenForAppending(const std::string& path) {
  return open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path) {
  std::unique_ptr<BatchOutput> output(new BatchOutput(path));
  output->file_ = OpenForAppending(path);
  if (output->file_ < 0) {
    return InvalidArgument(
        absl::StrCat("--output: cannot write ", path, ": ", std::strerror(errno)));
  }
  TANDEM_RETURN_IF_ERROR(output->Lock());
  std::string kept;
  bool is_clean = true;
  TANDEM_RETURN_IF_ERROR(output->ReadEarlier(&kept, &is_clean));
  if (!is_clean) TANDEM_RETURN_IF_ERROR(output->Rewrite(kept));
  return output;
}

BatchOutput::~BatchOutput() {
  if (file_ >= 0) close(file_);
}

absl::Status BatchOutput::Lock() {
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return FailedPrecondition("--output: another tandem batch writes to " + path_);
}

absl::Status BatchOutput::ReadEarlier(std::string* kept, bool* is_clean) {
  std::ifstream lines(path_, std::ios::binary);
  std::string text;
  for (int64_t number = 1; std::getline(lines, text); ++number) {
    if (lines.eof()) {  // the last line has no newline: it was only half written
      *is_clean = false;
      break;
    }
    auto answer = ParseBatchAnswer(text);
    if (!answer.ok()) {
      return InvalidArgument(absl::StrCat("--output: line ", number, " of ", path_,
                                          " is not an answer of a batch: is this another file?"));
    }
    if (!answer->has_succeeded || !answered_.insert(answer->custom_id).second) {
      *is_clean = false;
      continue;
    }
    absl::StrAppend(kept, text, "\n");
  }
  return absl::OkStatus();
}

absl::Status BatchOutput::Rewrite(const std::string& lines) {
  const std::string path = path_ + ".new";
  const int file = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    return InvalidArgument(
        absl::StrCat("--output: cannot write ", path, ": ", std::strerror(errno)));
  }
  close(std::exchange(file_, file));
  TANDEM_RETURN_IF_ERROR(Lock());
  TANDEM_RETURN_IF_ERROR(WriteAll(file_, lines));
  TANDEM_RETURN_IF_ERROR(Sync());
  if (std::rename(path.c_str(), path_.c_str()) == 0) return absl::OkStatus();
  return Unavailable(absl::StrCat("--output: cannot replace ", path_, ": ", std::strerror(errno)));
}

absl::Status BatchOutput::Append(const std::string& line) {
  const std::lock_guard lock(mutex_);
  TANDEM_RETURN_IF_ERROR(WriteAll(file_, line));
  const auto now = std::chrono::steady_clock::now();
  if (now - synced_ < kSyncPeriod) return absl::OkStatus();
  synced_ = now;
  return Sync();
}

absl::Status BatchOutput::Sync() {
  // A pipe or a device cannot be synced, and need not be.
  if (fdatasync(file_) == 0 || errno == EINVAL || errno == EROFS) return absl::OkStatus();
  return Unavailable(std::string("--output: ") + std::strerror(errno));
}

}  // namespace tandem::cli
