#include "kernels/device/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace tandem {

absl::Status CudaStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  static_cast<void>(cudaGetLastError());
  const std::string message =
      absl::StrCat(absl::string_view(call.data(), call.size()), ": ", cudaGetErrorString(error),
                   " (", cudaGetErrorName(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace tandem
