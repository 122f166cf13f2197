// Element types of weights, and of KV rows on a GPU. Activations, logits and KV rows on a CPU are
// F32.
#ifndef TANDEM_KERNELS_DTYPE_H_
#define TANDEM_KERNELS_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

enum class DType : uint8_t { kF32, kBF16, kF16 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  return "?";
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DTYPE_H_
