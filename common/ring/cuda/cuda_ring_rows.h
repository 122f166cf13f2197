// A ring's rows in the memory of one GPU that both workers use, shared through CUDA IPC.
#ifndef TANDEM_COMMON_RING_CUDA_CUDA_RING_ROWS_H_
#define TANDEM_COMMON_RING_CUDA_CUDA_RING_ROWS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/ring_rows.h"
#include "kernels/device/device_stream.h"
#include "kernels/device/ipc.h"

namespace tandem {

// The memory holds the nonce, padded to kNonceBytes, and then the entries' rows. Each entry has one
// event, which is made once and recorded again with each block.
class CudaRingRows final : public RingRows {
 public:
  static constexpr size_t kNonceBytes = 256;

  // Takes memory of the GPU that the calling thread uses, and copies the nonce there on `stream`,
  // which must outlive the rows. RESOURCE_EXHAUSTED: the GPU does not have enough memory left. Any
  // other error: the GPU cannot share memory.
  static absl::StatusOr<std::unique_ptr<RingRows>> Create(const RingGeometry& geometry,
                                                          uint64_t nonce,
                                                          const DeviceStream* stream);

  std::span<const RingHandle> handles() const override { return handles_; }
  float* rows(uint32_t entry) const override;
  absl::StatusOr<uint64_t> ReadEcho() override;
  absl::Status AwaitReady(uint32_t entry, std::chrono::steady_clock::time_point deadline) override;

 private:
  CudaRingRows(const RingGeometry& geometry, const DeviceStream* stream)
      : geometry_(geometry), stream_(stream) {}

  RingGeometry geometry_;
  const DeviceStream* stream_;
  // The source of the copy. If waiting for the copy failed, it ends when the memory is freed.
  uint64_t nonce_ = 0;
  ExportedMemory memory_;
  std::vector<DeviceEvent> ready_;
  std::vector<RingHandle> handles_;
};

class OpenedCudaRingRows final : public OpenedRingRows {
 public:
  // Rows are written on `stream`, which must outlive it.
  static absl::StatusOr<std::unique_ptr<OpenedRingRows>> Open(const RingGeometry& geometry,
                                                              std::span<const RingHandle> handles,
                                                              const DeviceStream* stream);

  float* rows(uint32_t entry) const override;
  absl::Status EchoNonce(uint64_t nonce) override;
  absl::Status RecordReady(uint32_t entry) override;

 private:
  OpenedCudaRingRows(const RingGeometry& geometry, const DeviceStream* stream)
      : geometry_(geometry), stream_(stream) {}

  RingGeometry geometry_;
  const DeviceStream* stream_;
  uint64_t nonce_ = 0;  // source of a copy, as in CudaRingRows
  ImportedMemory memory_;
  std::vector<DeviceEvent> ready_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_CUDA_CUDA_RING_ROWS_H_
