// Small files that operators write and replace while a process runs: certificates, keys, tokens.
#ifndef TANDEM_COMMON_SECURITY_OPERATOR_FILE_H_
#define TANDEM_COMMON_SECURITY_OPERATOR_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A stamp that changes with every change of a file, also through links and renames.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t changed_nanoseconds = 0;

  bool operator==(const FileStamp&) const = default;
};

// Nullopt if there is no file.
std::optional<FileStamp> StampOf(const std::string& path);

// Reads a regular file of at most 1 MiB. INVALID_ARGUMENT: the message names the path, and the
// `flag` that the path was given with.
absl::StatusOr<std::string> ReadOperatorFile(const std::string& flag, const std::string& path);

// Checks a file that holds a secret. INVALID_ARGUMENT if every user of the machine can write it,
// because the writer decides who is let in. If every user can read it, the log has a warning only:
// secrets that are mounted into a container often have this mode, and no other user is there.
absl::Status CheckSecretMode(const std::string& flag, const std::string& path);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_OPERATOR_FILE_H_
