#include "common/ring/ring_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/status.h"

namespace tandem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<RingMemory> RingMemory::Map(UniqueFd fd, size_t bytes) {
  const int flags = fd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("ring: cannot map " + std::to_string(bytes) +
                             " bytes: " + std::strerror(errno));
  }
  return RingMemory(std::move(fd), static_cast<std::byte*>(data), bytes);
}

absl::StatusOr<RingMemory> RingMemory::CreateShared(size_t bytes) {
  UniqueFd fd(memfd_create("tandem-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Unavailable(std::string("ring: memfd_create: ") + std::strerror(errno));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ResourceExhausted("ring: cannot size a memfd of " + std::to_string(bytes) +
                             " bytes: " + std::strerror(errno));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return Unavailable(std::string("ring: cannot seal the memfd: ") + std::strerror(errno));
  }
  return Map(std::move(fd), bytes);
}

absl::StatusOr<RingMemory> RingMemory::CreatePrivate(size_t bytes) {
  return Map(UniqueFd(), bytes);
}

absl::StatusOr<RingMemory> RingMemory::MapShared(UniqueFd fd, size_t bytes) {
  struct stat info {};
  if (fstat(fd.get(), &info) != 0)
    return FailedPrecondition(std::string("ring: fstat: ") + std::strerror(errno));
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != bytes) {
    return FailedPrecondition("ring: the descriptor has " + std::to_string(info.st_size) +
                              " bytes, want " + std::to_string(bytes));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return FailedPrecondition("ring: the descriptor is not a memfd sealed against resizing");
  }
  return Map(std::move(fd), bytes);
}

void RingMemory::Pin(const PinMemory& pin) {
  if (pin) pinned_ = pin(data_, bytes_);
}

RingMemory::~RingMemory() {
  pinned_.reset();
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace tandem
