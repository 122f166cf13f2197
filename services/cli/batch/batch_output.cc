#include "services/cli/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/cli/batch/batch_line.h"

namespace tandem::cli {

namespace {

constexpr std::chrono::seconds kSyncPeriod{1};
constexpr mode_t kPermissionBits = 07777;
// Another run may replace the file after it was opened and before it was locked.
constexpr int kMaxOpens = 8;

absl::Status CannotWrite(const std::string& path) {
  return InvalidArgument(absl::StrCat("--output: cannot write ", path, ": ", std::strerror(errno)));
}

absl::Status WriteFailed() { return Unavailable(std::string("--output: ") + std::strerror(errno)); }

absl::Status WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(file, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return WriteFailed();
    text.remove_prefix(static_cast<size_t>(size));
  }
  return absl::OkStatus();
}

absl::Status SyncFile(int file) {
  // A pipe or a device cannot be synced, and need not be.
  if (fdatasync(file) == 0 || errno == EINVAL || errno == EROFS) return absl::OkStatus();
  return WriteFailed();
}

// Waits until a new name of a file is on the disk.
absl::Status SyncFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const char* name = folder.empty() ? "." : folder.c_str();
  const UniqueFd file(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file && errno == EACCES) return absl::OkStatus();  // a folder that may be written only
  if (!file) return WriteFailed();
  if (fsync(file.get()) == 0 || errno == EINVAL) return absl::OkStatus();
  return WriteFailed();
}

absl::Status Lock(int file, const std::string& path) {
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return FailedPrecondition("--output: another tandem batch writes to " + path);
}

// Whether the path still leads to this file.
bool IsAt(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Makes an empty file with its lock.
absl::StatusOr<UniqueFd> MakeReplacement(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return CannotWrite(path);
  UniqueFd file(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     S_IRUSR | S_IWUSR));
  if (!file) return CannotWrite(path);
  TANDEM_RETURN_IF_ERROR(Lock(file.get(), path));
  return file;
}

// Gives the file these lines, and the permissions of the earlier file.
absl::Status FillReplacement(int file, int earlier, const std::string& lines) {
  struct stat info {};
  if (fstat(earlier, &info) != 0) return WriteFailed();
  if (fchmod(file, info.st_mode & kPermissionBits) != 0) return WriteFailed();
  TANDEM_RETURN_IF_ERROR(WriteAll(file, lines));
  return SyncFile(file);
}

}  // namespace

std::string BatchReplacementPath(const std::string& output) { return output + ".new"; }

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path) {
  std::unique_ptr<BatchOutput> output(new BatchOutput(path));
  TANDEM_RETURN_IF_ERROR(output->OpenLocked());
  std::string kept;
  bool is_clean = true;
  TANDEM_RETURN_IF_ERROR(output->ReadEarlier(&kept, &is_clean));
  if (!is_clean) TANDEM_RETURN_IF_ERROR(output->Rewrite(kept));
  return output;
}

absl::Status BatchOutput::OpenLocked() {
  for (int i = 0; i < kMaxOpens; ++i) {
    file_ = UniqueFd(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
    if (!file_) return CannotWrite(path_);
    TANDEM_RETURN_IF_ERROR(Lock(file_.get(), path_));
    if (IsAt(file_.get(), path_)) return absl::OkStatus();
  }
  return FailedPrecondition("--output: other programs replace " + path_ + " again and again");
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
  const std::string path = BatchReplacementPath(path_);
  TANDEM_ASSIGN_OR_RETURN(UniqueFd file, MakeReplacement(path));
  absl::Status status = FillReplacement(file.get(), file_.get(), lines);
  if (status.ok() && std::rename(path.c_str(), path_.c_str()) != 0) {
    status =
        Unavailable(absl::StrCat("--output: cannot replace ", path_, ": ", std::strerror(errno)));
  }
  if (!status.ok()) {
    unlink(path.c_str());
    return status;
  }
  // The earlier file is locked until here, so that whoever gets its lock finds the new file.
  file_ = std::move(file);
  return SyncFolderOf(path_);
}

absl::Status BatchOutput::Append(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return status_;
  struct stat before {};
  if (fstat(file_.get(), &before) != 0) return status_ = WriteFailed();
  status_ = WriteAll(file_.get(), line);
  if (!status_.ok()) {
    // A pipe cannot be cut. Where a half line stays, nothing is written behind it.
    [[maybe_unused]] const int ignored = ftruncate(file_.get(), before.st_size);
    return status_;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - synced_ < kSyncPeriod) return absl::OkStatus();
  synced_ = now;
  return status_ = SyncFile(file_.get());
}

absl::Status BatchOutput::Sync() { return SyncFile(file_.get()); }

}  // namespace tandem::cli
