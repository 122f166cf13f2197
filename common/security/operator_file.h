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

// Another one after every change of a file, through links and renames too.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t changed_nanoseconds = 0;

  bool operator==(const FileStamp&) const = default;
};

// Nullopt: there is nothing there.
std::optional<FileStamp> StampOf(const std::string& path);

// All of a regular file of at most 1 MiB. INVALID_ARGUMENT names `flag`, which it was given with,
// and the path.
absl::StatusOr<std::string> ReadOperatorFile(const std::string& flag, const std::string& path);

// For what holds a secret. One that every user of the machine can write is INVALID_ARGUMENT: who
// writes it decides who comes in. One that they can read is warned of in the log: secrets that are
// mounted into a container often are, and nobody else is there.
absl::Status CheckSecretMode(const std::string& flag, const std::string& path);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_OPERATOR_FILE_H_
