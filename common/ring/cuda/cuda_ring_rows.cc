#include "common/ring/cuda/cuda_ring_rows.h"

#include <chrono>
#include <string>
#include <thread>

#include "common/status.h"

namespace tandem {
namespace {

static_assert(sizeof(RingHandle) == sizeof(IpcHandle));

constexpr std::chrono::microseconds kReadyPoll{20};

float* RowsOf(void* memory, const RingGeometry& geometry, uint32_t entry) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(memory) + CudaRingRows::kNonceBytes +
                                  entry * geometry.entry_bytes());
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingRows>> CudaRingRows::Create(const RingGeometry& geometry,
                                                               uint64_t nonce,
                                                               const DeviceStream* stream) {
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  std::unique_ptr<CudaRingRows> rows(new CudaRingRows(geometry, stream));
  TANDEM_ASSIGN_OR_RETURN(
      rows->memory_,
      ExportedMemory::Create(kNonceBytes + geometry.entries * geometry.entry_bytes()));
  rows->handles_.push_back(rows->memory_.handle());
  for (uint32_t entry = 0; entry < geometry.entries; ++entry) {
    TANDEM_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::CreateShared());
    TANDEM_ASSIGN_OR_RETURN(const IpcHandle handle, event.Handle());
    rows->handles_.push_back(handle);
    rows->ready_.push_back(std::move(event));
  }
  rows->nonce_ = nonce;
  TANDEM_RETURN_IF_ERROR(stream->Copy(rows->memory_.data(), &rows->nonce_, sizeof(nonce)));
  TANDEM_RETURN_IF_ERROR(stream->Wait());
  return rows;
}

float* CudaRingRows::rows(uint32_t entry) const { return RowsOf(memory_.data(), geometry_, entry); }

absl::StatusOr<uint64_t> CudaRingRows::ReadEcho() {
  const absl::Status copied = stream_->Copy(&nonce_, memory_.data(), sizeof(nonce_));
  TANDEM_RETURN_IF_ERROR(stream_->Wait());
  TANDEM_RETURN_IF_ERROR(copied);
  return nonce_;
}

absl::Status CudaRingRows::AwaitReady(uint32_t entry,
                                      std::chrono::steady_clock::time_point deadline) {
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool reached, ready_[entry].IsReached());
    if (reached) return absl::OkStatus();
    if (std::chrono::steady_clock::now() > deadline) {
      return FailedPrecondition("ring entry " + std::to_string(entry) + ": its rows are not there");
    }
    std::this_thread::sleep_for(kReadyPoll);
  }
}

absl::StatusOr<std::unique_ptr<OpenedRingRows>> OpenedCudaRingRows::Open(
    const RingGeometry& geometry, std::span<const RingHandle> handles, const DeviceStream* stream) {
  TANDEM_RETURN_IF_ERROR(geometry.Check());
  if (handles.size() != size_t{1} + geometry.entries) {
    return FailedPrecondition("ring: " + std::to_string(handles.size()) + " handles, want " +
                              std::to_string(1 + geometry.entries));
  }
  std::unique_ptr<OpenedCudaRingRows> rows(new OpenedCudaRingRows(geometry, stream));
  TANDEM_ASSIGN_OR_RETURN(rows->memory_, ImportedMemory::Open(handles.front()));
  for (const RingHandle& handle : handles.subspan(1)) {
    TANDEM_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::OpenShared(handle));
    rows->ready_.push_back(std::move(event));
  }
  return rows;
}

float* OpenedCudaRingRows::rows(uint32_t entry) const {
  return RowsOf(memory_.data(), geometry_, entry);
}

absl::Status OpenedCudaRingRows::EchoNonce(uint64_t nonce) {
  absl::Status copied = stream_->Copy(&nonce_, memory_.data(), sizeof(nonce_));
  TANDEM_RETURN_IF_ERROR(stream_->Wait());
  TANDEM_RETURN_IF_ERROR(copied);
  if (nonce_ != nonce) return FailedPrecondition("ring: the handle leads to other memory");
  nonce_ = ~nonce;
  copied = stream_->Copy(memory_.data(), &nonce_, sizeof(nonce_));
  TANDEM_RETURN_IF_ERROR(stream_->Wait());
  return copied;
}

absl::Status OpenedCudaRingRows::RecordReady(uint32_t entry) {
  return ready_[entry].Record(*stream_);
}

}  // namespace tandem
