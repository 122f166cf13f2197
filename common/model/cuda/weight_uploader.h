// Copies weights from the host to a device.
#ifndef TANDEM_COMMON_MODEL_CUDA_WEIGHT_UPLOADER_H_
#define TANDEM_COMMON_MODEL_CUDA_WEIGHT_UPLOADER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/linear.h"
#include "common/status.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Copies through two pieces of pinned memory. One piece is filled while the device fetches the
// other. Errors of all calls: RESOURCE_EXHAUSTED, if the arena is too small; other errors come from
// the device.
class WeightUploader {
 public:
  // The arguments must outlive the uploader. `on_progress`, if set, is called with the bytes that
  // this uploader has copied so far.
  static absl::StatusOr<WeightUploader> Create(DeviceArena& arena, const DeviceStream& stream,
                                               const std::function<void(uint64_t)>& on_progress);
  // The device may still be fetching from the pieces.
  ~WeightUploader() { stream_->Wait().IgnoreError(); }
  WeightUploader(WeightUploader&&) = default;
  WeightUploader& operator=(WeightUploader&&) = default;

  // Return the bytes of the arena that a copy takes.
  static uint64_t Bytes(const std::vector<float>& values);
  static uint64_t Bytes(std::span<const Linear* const> linears);
  static uint64_t Bytes(const Linear& linear);

  // Returns null if there are no values.
  absl::StatusOr<const float*> Copy(const std::vector<float>& values, const char* what);
  // Copies linears that take the same rows as one, with the features of each after those of the one
  // before. PRECOND: they have one type.
  absl::StatusOr<CudaLinear> Copy(std::span<const Linear* const> linears, const char* what);
  absl::StatusOr<CudaLinear> Copy(const Linear& linear, const char* what);

 private:
  struct Piece {
    PinnedMemory memory;
    DeviceEvent fetched;
    bool is_used = false;
  };

  WeightUploader(DeviceArena& arena, const DeviceStream& stream,
                 const std::function<void(uint64_t)>& on_progress)
      : arena_(&arena), stream_(&stream), on_progress_(&on_progress) {}

  absl::Status CopyBytes(void* to, const void* from, size_t bytes);
  absl::Status CopyPiece(void* to, const void* from, size_t bytes);

  DeviceArena* arena_;
  const DeviceStream* stream_;
  const std::function<void(uint64_t)>* on_progress_;
  std::array<Piece, 2> pieces_;
  size_t turn_ = 0;
  uint64_t copied_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_WEIGHT_UPLOADER_H_
