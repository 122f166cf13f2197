#include "common/security/operator_file.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/status.h"

namespace tandem {
namespace {

constexpr off_t kMaxOperatorFileBytes = 1 << 20;
constexpr int64_t kNanoseconds = 1000000000;

}  // namespace

std::optional<FileStamp> StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  // The stamp includes the inode's time of change, so it also changes if the time of modification
  // was set back.
  return FileStamp{
      .device = info.st_dev,
      .inode = info.st_ino,
      .size = info.st_size,
      .changed_nanoseconds = info.st_ctim.tv_sec * kNanoseconds + info.st_ctim.tv_nsec};
}

absl::StatusOr<std::string> ReadOperatorFile(const std::string& flag, const std::string& path) {
  const std::string where = flag + " " + path + ": ";
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return InvalidArgument(where + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return InvalidArgument(where + "this is not a file");
  if (info.st_size > kMaxOperatorFileBytes) {
    return InvalidArgument(where + "it has " + std::to_string(info.st_size) +
                           " bytes, allowed: at most " + std::to_string(kMaxOperatorFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || (info.st_size > 0 && !(content << file.rdbuf()))) {
    return InvalidArgument(where + "cannot be read: " + std::strerror(errno));
  }
  return std::move(content).str();
}

absl::Status CheckSecretMode(const std::string& flag, const std::string& path) {
  struct stat info {};
  // Reading the file reports the error.
  if (stat(path.c_str(), &info) != 0) return absl::OkStatus();
  if ((info.st_mode & S_IWOTH) != 0) {
    return InvalidArgument(flag + " " + path +
                           ": every user of this machine can write it (chmod o-w prevents that)");
  }
  if ((info.st_mode & S_IROTH) != 0) {
    spdlog::warn("{} {}: every user of this machine can read it (chmod o-r prevents that)", flag,
                 path);
  }
  return absl::OkStatus();
}

}  // namespace tandem
