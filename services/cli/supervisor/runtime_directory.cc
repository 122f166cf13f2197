#include "services/cli/supervisor/runtime_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "common/status.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

constexpr char kPrefix[] = "tandem-run-";
constexpr char kLockName[] = "lock";
// This limit leaves room for our part of a socket's path, which has at most 107 bytes.
constexpr size_t kMaxParentBytes = 60;

// Returns the lock, or -1 if another process holds it or the file cannot be opened.
int TryLock(const fs::path& file, int flags) {
  const int fd = open(file.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void RemoveAbandoned(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().rfind(kPrefix, 0) != 0) continue;
    struct stat info {};
    if (lstat(entry->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != geteuid()) {
      continue;
    }
    const int fd = TryLock(entry->path() / kLockName, 0);
    if (fd < 0) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
    close(fd);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RuntimeDirectory>> RuntimeDirectory::Create() {
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && *xdg == '/' && std::strlen(xdg) <= kMaxParentBytes &&
      access(xdg, W_OK | X_OK) == 0) {
    return CreateUnder(xdg);
  }
  return CreateUnder("/tmp");
}

absl::StatusOr<std::unique_ptr<RuntimeDirectory>> RuntimeDirectory::CreateUnder(
    const fs::path& parent) {
  RemoveAbandoned(parent);
  // The folder gets its final name only after it is locked, so that a sweep never sees it unlocked.
  std::string name = (parent / ".tandem-new-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    return Unavailable("cannot make a folder for sockets in " + parent.string() + ": " +
                       std::strerror(errno));
  }
  const fs::path made = name;
  const fs::path path = parent / (kPrefix + name.substr(name.size() - 6));
  const int lock_fd = TryLock(made / kLockName, O_CREAT);
  std::error_code error;
  if (lock_fd >= 0) fs::rename(made, path, error);
  if (lock_fd < 0 || error) {
    std::error_code ignored;
    fs::remove_all(made, ignored);
    if (lock_fd >= 0) close(lock_fd);
    return Unavailable("cannot prepare a folder for sockets in " + parent.string());
  }
  return std::unique_ptr<RuntimeDirectory>(new RuntimeDirectory(path, lock_fd));
}

RuntimeDirectory::~RuntimeDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_fd_);
}

std::string RuntimeDirectory::SocketAddress(const std::string& name) const {
  return "unix:" + (path_ / name).string();
}

}  // namespace tandem::cli
