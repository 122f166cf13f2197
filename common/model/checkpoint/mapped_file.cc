#include "common/model/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

std::string ErrnoText() { return std::generic_category().message(errno); }

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const std::string message = path.string() + ": cannot be opened: " + ErrnoText();
    return errno == ENOENT ? NotFound(message) : FailedPrecondition(message);
  }
  struct stat info {};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor);
    return InvalidArgument(path.string() + ": is not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  const char* data = nullptr;
  if (size > 0) {
    void* mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapping == MAP_FAILED) {
      const std::string message = path.string() + ": cannot be mapped: " + ErrnoText();
      close(descriptor);
      return ResourceExhausted(message);
    }
    data = static_cast<const char*>(mapping);
    // Without huge pages the file is read all the same, and so an error does not matter.
    constexpr size_t kHugePage = 2 << 20;
    if (size >= kHugePage) madvise(mapping, size, MADV_HUGEPAGE);
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, descriptor, data, size));
}

MappedFile::MappedFile(std::filesystem::path path, int descriptor, const char* data, size_t size)
    : path_(std::move(path)), descriptor_(descriptor), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  close(descriptor_);
}

void MappedFile::WillNeed() const {
  if (data_ != nullptr) posix_madvise(const_cast<char*>(data_), size_, POSIX_MADV_WILLNEED);
}

absl::Status MappedFile::CheckWhole() const {
  struct stat info {};
  if (fstat(descriptor_, &info) == 0 && static_cast<size_t>(info.st_size) >= size_) {
    return absl::OkStatus();
  }
  return FailedPrecondition(path_.string() + ": has " + std::to_string(info.st_size) +
                            " bytes, had " + std::to_string(size_) +
                            " when it was mapped (truncated while in use; restore it and restart)");
}

}  // namespace tandem
