#include "common/model/kv/kv_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <string>

#include "common/status.h"

namespace tandem {

absl::Status HoldsNoPage(uint64_t bytes, uint64_t page_bytes) {
  return InvalidArgument("KV cache: " + std::to_string(bytes) +
                         " bytes (--kv-cache-bytes) hold no page: one page of " +
                         std::to_string(kPageRows) + " tokens takes " + std::to_string(page_bytes));
}

uint64_t HostKvMemory::Bytes(const KvShape& shape, size_t rows) {
  return (rows + kPageRows - 1) / kPageRows * PageBytes(shape);
}

absl::StatusOr<std::unique_ptr<HostKvMemory>> HostKvMemory::Create(const KvShape& shape,
                                                                   uint64_t bytes) {
  const uint64_t page_bytes = PageBytes(shape);
  const uint64_t reserved_bytes = bytes / page_bytes * page_bytes;
  if (reserved_bytes == 0) return HoldsNoPage(bytes, page_bytes);
  void* data = mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("KV cache: " + std::to_string(reserved_bytes) +
                             " bytes (--kv-cache-bytes) cannot be reserved");
  }
  return std::unique_ptr<HostKvMemory>(
      new HostKvMemory(shape, static_cast<float*>(data), reserved_bytes));
}

HostKvMemory::~HostKvMemory() { munmap(data_, reserved_bytes_); }

absl::Status HostKvMemory::Copy(size_t from, size_t to) {
  std::copy_n(HostPage(from), shape_.page_floats(), HostPage(to));
  return absl::OkStatus();
}

absl::Status HostKvMemory::CopyRows(std::span<const KvRowMove> moves) {
  for (const KvRowMove& move : moves) {
    float* const from_page = HostPage(move.from_page);
    float* const to_page = HostPage(move.to_page);
    std::copy_n(Feature(from_page, move.from_row), shape_.feature_floats,
                Feature(to_page, move.to_row));
    for (size_t layer = 0; layer < shape_.num_layers; ++layer) {
      const KvLayer from = Layer(&from_page, layer);
      const KvLayer to = Layer(&to_page, layer);
      for (size_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (size_t i = 0; i < shape_.head_size; ++i) {
          to.Keys(head, 0)[i * kPageRows + move.to_row] =
              from.Keys(head, 0)[i * kPageRows + move.from_row];
        }
        std::copy_n(from.Values(head, 0) + move.from_row * shape_.head_size, shape_.head_size,
                    to.Values(head, 0) + move.to_row * shape_.head_size);
      }
    }
  }
  return absl::OkStatus();
}

void HostKvMemory::Spoil([[maybe_unused]] size_t index, [[maybe_unused]] size_t begin,
                         [[maybe_unused]] size_t end) {
#ifndef NDEBUG
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  float* const data = HostPage(index);
  std::fill(Feature(data, begin), Feature(data, end), kNan);
  for (size_t layer = 0; layer < shape_.num_layers; ++layer) {
    const KvLayer kv = Layer(&data, layer);
    for (size_t head = 0; head < shape_.num_kv_heads; ++head) {
      for (size_t i = 0; i < shape_.head_size; ++i) {
        std::fill(kv.Keys(head, 0) + i * kPageRows + begin, kv.Keys(head, 0) + i * kPageRows + end,
                  kNan);
      }
      std::fill(kv.Values(head, 0) + begin * shape_.head_size,
                kv.Values(head, 0) + end * shape_.head_size, kNan);
    }
  }
#endif
}

}  // namespace tandem
