// A file that is mapped for reading. Processes that map the same file share its pages. Linux is
// asked for huge pages, which it uses if the file system has large folios (ext4 since Linux 6.16,
// XFS) and the file is not in memory yet. The first access then reads 4 MiB instead of some pages.
#ifndef TANDEM_COMMON_MODEL_CHECKPOINT_MAPPED_FILE_H_
#define TANDEM_COMMON_MODEL_CHECKPOINT_MAPPED_FILE_H_

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

class MappedFile {
 public:
  // Opens a regular file. Other files are refused, because a FIFO would block. Errors name the
  // file.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }

  // Asks the system to read the file ahead.
  void WillNeed() const;

  // Returns an error if the file has become shorter since Open. Reading past its new end would be a
  // bus error.
  absl::Status CheckWhole() const;

 private:
  MappedFile(std::filesystem::path path, int descriptor, const char* data, size_t size);

  std::filesystem::path path_;
  int descriptor_;
  const char* data_;  // null if the file is empty
  size_t size_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CHECKPOINT_MAPPED_FILE_H_
