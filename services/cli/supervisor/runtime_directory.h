// The private folder in which the sockets of one supervisor live.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_RUNTIME_DIRECTORY_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_RUNTIME_DIRECTORY_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::cli {

// Mode 0700, removed with all it holds by the destructor. A lock held by this process marks it as
// alive: what a supervisor that was killed left behind is removed by the next one that starts.
class RuntimeDirectory {
 public:
  // Under $XDG_RUNTIME_DIR, or /tmp where that is not set, not writable or too long for a socket's
  // path.
  static absl::StatusOr<std::unique_ptr<RuntimeDirectory>> Create();
  static absl::StatusOr<std::unique_ptr<RuntimeDirectory>> CreateUnder(
      const std::filesystem::path& parent);
  ~RuntimeDirectory();
  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // "unix:PATH" of a socket in it.
  std::string SocketAddress(const std::string& name) const;

 private:
  RuntimeDirectory(std::filesystem::path path, int lock_fd)
      : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::filesystem::path path_;
  int lock_fd_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_RUNTIME_DIRECTORY_H_
