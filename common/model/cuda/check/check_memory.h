// The device memory of a check, its random numbers, and its comparisons.
#ifndef TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_MEMORY_H_
#define TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_MEMORY_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Its memory must outlive the work on the stream. Move-only.
class CheckMemory {
 public:
  // `stream` must outlive the memory.
  static absl::StatusOr<CheckMemory> Create(size_t bytes, const DeviceStream* stream);

  CudaStream stream() const { return stream_->get(); }

  // Returns device memory with these values.
  template <typename T>
  absl::StatusOr<T*> Upload(const std::vector<T>& values) {
    TANDEM_ASSIGN_OR_RETURN(T* const memory, arena_.Take<T>(values.size(), kWhat));
    std::vector<std::byte>& from = in_use_.emplace_back(values.size() * sizeof(T));
    std::memcpy(from.data(), values.data(), from.size());
    TANDEM_RETURN_IF_ERROR(stream_->Copy(memory, from.data(), from.size()));
    return memory;
  }
  // Returns device memory for so many values, which are to be spoiled.
  template <typename T>
  absl::StatusOr<T*> Take(size_t count) {
    return arena_.Take<T>(count, kWhat);
  }
  // Sets all bits, which is NaN in every type. What a kernel should have written, and did not, is
  // then seen.
  template <typename T>
  absl::Status Spoil(T* memory, size_t count) const {
    const size_t bytes = count * sizeof(T);
    return stream_->FillRows(memory, bytes, 0xFF, bytes, 1);
  }
  // Waits for the work so far.
  template <typename T>
  absl::StatusOr<std::vector<T>> Download(const T* memory, size_t count) {
    std::vector<std::byte>& to = in_use_.emplace_back(count * sizeof(T));
    TANDEM_RETURN_IF_ERROR(stream_->Copy(to.data(), memory, to.size()));
    TANDEM_RETURN_IF_ERROR(stream_->Wait());
    std::vector<T> values(count);
    std::memcpy(values.data(), to.data(), to.size());
    in_use_.clear();
    return values;
  }

 private:
  static constexpr const char* kWhat = "the check of the GPU";

  DeviceArena arena_;
  const DeviceStream* stream_ = nullptr;
  std::vector<std::vector<std::byte>> in_use_;  // by copies on the stream
};

// A fast source of numbers that are the same in every run.
class CheckNumbers {
 public:
  explicit CheckNumbers(uint64_t seed) : state_(seed) {}
  // Returns numbers in [-1, 1).
  std::vector<float> Uniform(size_t count);
  // Returns numbers in [-1, 1) that are BF16.
  std::vector<float> UniformBf16(size_t count);
  // Returns multiples of 1/64 in [-1, 1): every type of weights and pages holds them.
  std::vector<float> Coarse(size_t count);

 private:
  uint64_t Next();
  uint64_t state_;
};

// Returns [num_parts, values]. One part has the leading bits of a value, and three parts have all.
std::vector<uint16_t> Bf16Parts(std::span<const float> values, int num_parts);
inline float WidenBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// FAILED_PRECONDITION: a value of `got` is further from that of `want` than absolute + relative *
// |want|, or not a number. The message begins with `what`. Rows have row_size values.
absl::Status CheckNear(const std::string& what, std::span<const float> got,
                       std::span<const float> want, size_t row_size, double absolute,
                       double relative = 0);

// FAILED_PRECONDITION: the bits differ.
template <typename T>
absl::Status CheckSame(const std::string& what, const std::vector<T>& got,
                       const std::vector<T>& want, size_t row_size) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint16_t>;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::bit_cast<Bits>(got[i]) == std::bit_cast<Bits>(want[i])) continue;
    return FailedPrecondition(absl::StrCat(what, ": row ", i / row_size, ", value ", i % row_size,
                                           ": ", got[i], " and ", want[i], " should be the same"));
  }
  return absl::OkStatus();
}

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_MEMORY_H_
