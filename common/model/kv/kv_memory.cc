#include "common/model/kv/kv_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <string>

#include "common/status.h"

namespace tandem {
namespace {

size_t PageFloats(const ModelDescription& model) {
  return kPageRows * model.num_layers * model.attention.num_kv_heads * model.attention.head_size *
         2;
}

}  // namespace

absl::Status HoldsNoPage(uint64_t bytes, uint64_t page_bytes) {
  return InvalidArgument("KV cache: " + std::to_string(bytes) +
                         " bytes (--kv-cache-bytes) hold no page: one page of " +
                         std::to_string(kPageRows) + " tokens takes " + std::to_string(page_bytes));
}

uint64_t HostKvMemory::PageBytes(const ModelDescription& model) {
  return PageFloats(model) * sizeof(float);
}

uint64_t HostKvMemory::Bytes(const ModelDescription& model, size_t rows) {
  return (rows + kPageRows - 1) / kPageRows * PageBytes(model);
}

absl::StatusOr<std::unique_ptr<HostKvMemory>> HostKvMemory::Create(const ModelDescription& model,
                                                                   uint64_t bytes) {
  const uint64_t page_bytes = PageBytes(model);
  const uint64_t reserved_bytes = bytes / page_bytes * page_bytes;
  if (reserved_bytes == 0) return HoldsNoPage(bytes, page_bytes);
  void* data = mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("KV cache: " + std::to_string(reserved_bytes) +
                             " bytes (--kv-cache-bytes) cannot be reserved");
  }
  return std::unique_ptr<HostKvMemory>(
      new HostKvMemory(model, static_cast<float*>(data), reserved_bytes));
}

HostKvMemory::HostKvMemory(const ModelDescription& model, float* data, uint64_t reserved_bytes)
    : num_layers_(model.num_layers),
      num_kv_heads_(model.attention.num_kv_heads),
      head_size_(model.attention.head_size),
      page_floats_(PageFloats(model)),
      data_(data),
      reserved_bytes_(reserved_bytes) {}

HostKvMemory::~HostKvMemory() { munmap(data_, reserved_bytes_); }

absl::Status HostKvMemory::Copy(size_t from, size_t to) {
  std::copy_n(HostPage(from), page_floats_, HostPage(to));
  return absl::OkStatus();
}

absl::Status HostKvMemory::CopyRows(std::span<const KvRowMove> moves) {
  for (const KvRowMove& move : moves) {
    float* const from_page = HostPage(move.from_page);
    float* const to_page = HostPage(move.to_page);
    for (size_t layer = 0; layer < num_layers_; ++layer) {
      const KvLayer from = Layer(&from_page, layer);
      const KvLayer to = Layer(&to_page, layer);
      for (size_t head = 0; head < num_kv_heads_; ++head) {
        for (size_t i = 0; i < head_size_; ++i) {
          to.Keys(head, 0)[i * kPageRows + move.to_row] =
              from.Keys(head, 0)[i * kPageRows + move.from_row];
        }
        std::copy_n(from.Values(head, 0) + move.from_row * head_size_, head_size_,
                    to.Values(head, 0) + move.to_row * head_size_);
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
  for (size_t layer = 0; layer < num_layers_; ++layer) {
    const KvLayer kv = Layer(&data, layer);
    for (size_t head = 0; head < num_kv_heads_; ++head) {
      for (size_t i = 0; i < head_size_; ++i) {
        std::fill(kv.Keys(head, 0) + i * kPageRows + begin, kv.Keys(head, 0) + i * kPageRows + end,
                  kNan);
      }
      std::fill(kv.Values(head, 0) + begin * head_size_, kv.Values(head, 0) + end * head_size_,
                kNan);
    }
  }
#endif
}

}  // namespace tandem
