#include "kernels/device/device_stream.h"

#include <cuda_runtime.h>

#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"

namespace tandem {

absl::StatusOr<DeviceStream> DeviceStream::Create() {
  DeviceStream stream;
  if (absl::Status status = CudaStatus(
          cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "cudaStreamCreate");
      !status.ok()) {
    return status;
  }
  return stream;
}

DeviceStream::~DeviceStream() {
  if (stream_ == nullptr) return;
  static_cast<void>(CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
  static_cast<void>(CudaStatus(cudaStreamDestroy(stream_), "cudaStreamDestroy"));
}

absl::Status DeviceStream::Copy(void* to, const void* from, size_t bytes) const {
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_),
                    "cudaMemcpyAsync");
}

absl::Status DeviceStream::Clear(void* memory, size_t bytes) const {
  return CudaStatus(cudaMemsetAsync(memory, 0, bytes, stream_), "cudaMemsetAsync");
}

absl::Status DeviceStream::FillRows(void* memory, size_t pitch, uint8_t value, size_t width,
                                    size_t height) const {
  return CudaStatus(cudaMemset2DAsync(memory, pitch, value, width, height, stream_),
                    "cudaMemset2DAsync");
}

absl::Status DeviceStream::CopyRows(void* to, const void* from, size_t pitch, size_t width,
                                    size_t height) const {
  return CudaStatus(
      cudaMemcpy2DAsync(to, pitch, from, pitch, width, height, cudaMemcpyDefault, stream_),
      "cudaMemcpy2DAsync");
}

absl::Status DeviceStream::Wait() const {
  return CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

absl::StatusOr<DeviceEvent> DeviceEvent::Create(bool timed) {
  return CreateWith(timed ? cudaEventDefault : cudaEventDisableTiming);
}

absl::StatusOr<DeviceEvent> DeviceEvent::CreateShared() {
  return CreateWith(cudaEventInterprocess | cudaEventDisableTiming);
}

absl::StatusOr<DeviceEvent> DeviceEvent::OpenShared(const IpcHandle& handle) {
  DeviceEvent event;
  if (absl::Status status = CudaStatus(
          cudaIpcOpenEventHandle(&event.event_, std::bit_cast<cudaIpcEventHandle_t>(handle)),
          "cudaIpcOpenEventHandle");
      !status.ok()) {
    event.event_ = nullptr;
    return status;
  }
  return event;
}

absl::StatusOr<IpcHandle> DeviceEvent::Handle() const {
  static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(IpcHandle));
  cudaIpcEventHandle_t handle;
  if (absl::Status status =
          CudaStatus(cudaIpcGetEventHandle(&handle, event_), "cudaIpcGetEventHandle");
      !status.ok()) {
    return status;
  }
  return std::bit_cast<IpcHandle>(handle);
}

absl::StatusOr<DeviceEvent> DeviceEvent::CreateWith(unsigned flags) {
  DeviceEvent event;
  if (absl::Status status =
          CudaStatus(cudaEventCreateWithFlags(&event.event_, flags), "cudaEventCreate");
      !status.ok()) {
    return status;
  }
  return event;
}

DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr)
    static_cast<void>(CudaStatus(cudaEventDestroy(event_), "cudaEventDestroy"));
}

absl::Status DeviceEvent::Record(const DeviceStream& stream) const {
  return CudaStatus(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
}

absl::Status DeviceEvent::Wait() const {
  return CudaStatus(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

absl::StatusOr<bool> DeviceEvent::IsReached() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  if (absl::Status status = CudaStatus(error, "cudaEventQuery"); !status.ok()) return status;
  return true;
}

absl::StatusOr<double> DeviceEvent::SecondsSince(const DeviceEvent& earlier) const {
  float milliseconds = 0;
  if (absl::Status status = CudaStatus(cudaEventElapsedTime(&milliseconds, earlier.event_, event_),
                                       "cudaEventElapsedTime");
      !status.ok()) {
    return status;
  }
  return 1e-3 * static_cast<double>(milliseconds);
}

absl::StatusOr<PinnedMemory> PinnedMemory::Create(size_t bytes) {
  PinnedMemory memory;
  if (absl::Status status = CudaStatus(cudaMallocHost(&memory.memory_, bytes),
                                       absl::StrCat("cudaMallocHost of ", bytes, " bytes"));
      !status.ok()) {
    return status;
  }
  memory.size_ = bytes;
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (memory_ != nullptr) static_cast<void>(CudaStatus(cudaFreeHost(memory_), "cudaFreeHost"));
}

absl::StatusOr<PinnedRange> PinnedRange::Create(void* memory, size_t bytes) {
  if (absl::Status status = CudaStatus(cudaHostRegister(memory, bytes, cudaHostRegisterPortable),
                                       absl::StrCat("cudaHostRegister of ", bytes, " bytes"));
      !status.ok()) {
    return status;
  }
  PinnedRange range;
  range.memory_ = memory;
  return range;
}

PinnedRange::~PinnedRange() {
  if (memory_ == nullptr) return;
  static_cast<void>(CudaStatus(cudaHostUnregister(memory_), "cudaHostUnregister"));
}

}  // namespace tandem
