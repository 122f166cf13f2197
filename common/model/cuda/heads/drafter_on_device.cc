#include "common/model/cuda/heads/drafter_on_device.h"

#include "common/model/cuda/memory_taker.h"
#include "common/status.h"

namespace tandem {

absl::Status DrafterOnDevice::Bring(const CudaWeights& target, const DeviceStream* stream,
                                    CudaKvMemory* pages, const std::function<void()>& on_progress) {
  uint64_t bytes = weight_bytes();
  const auto add = [&](void**, size_t piece_bytes, const char*) {
    bytes += DeviceArena::Rounded(piece_bytes);
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(device_.LayOut(MemoryTaker(add)));
  TANDEM_ASSIGN_OR_RETURN(arena_, DeviceArena::Create(bytes));
  const auto take = [&](void** piece, size_t piece_bytes, const char* what) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(*piece, arena_.Take<char>(piece_bytes, what));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(device_.LayOut(MemoryTaker(take)));
  TANDEM_RETURN_IF_ERROR(device_.Start(stream));
  TANDEM_RETURN_IF_ERROR(device_.Upload(target, arena_, [&](uint64_t) { on_progress(); }));
  device_.UsePages(pages);
  return stream->Wait();
}

}  // namespace tandem
