// The private folder that holds the sockets of one supervisor.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_RUNTIME_DIRECTORY_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_RUNTIME_DIRECTORY_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::cli {

// The folder has mode 0700. The destructor removes it with its contents. This process holds a lock
// that marks the folder as in use. A supervisor that starts removes the folders of killed
// supervisors, because they are unlocked.
class RuntimeDirectory {
 public:
  // Creates the folder under $XDG_RUNTIME_DIR. Uses /tmp if that variable is not set, or names a
  // path that is not writable or too long for a socket.
  static absl::StatusOr<std::unique_ptr<RuntimeDirectory>> Create();
  static absl::StatusOr<std::unique_ptr<RuntimeDirectory>> CreateUnder(
      const std::filesystem::path& parent);
  ~RuntimeDirectory();
  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Returns "unix:PATH" for a socket in the folder.
  std::string SocketAddress(const std::string& name) const;

 private:
  RuntimeDirectory(std::filesystem::path path, int lock_fd)
      : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::filesystem::path path_;
  int lock_fd_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_RUNTIME_DIRECTORY_H_
