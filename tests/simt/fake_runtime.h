// The part of CUDA's runtime that Tandem uses, on a host.
//
// A stream does nothing until something waits for it. Work whose result is used without a wait is
// therefore seen as missing. Device memory begins as NaN, and under AddressSanitizer no host code
// can touch it. Any call can be made to fail, and the device can be made to be lost. All later
// calls then fail.
//
// Whole processes can lose their device too. If TANDEM_SIMT_LOSSES names a folder, a process looks
// for a file there with the name of its executable. It removes the file, and its next call has lost
// the device. The next life of the process finds no file.
#ifndef TANDEM_TESTS_SIMT_FAKE_RUNTIME_H_
#define TANDEM_TESTS_SIMT_FAKE_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "tests/simt/simt.h"

// NOLINTBEGIN: CUDA's names and values
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaHostRegisterPortable = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaEventInterprocess = 4;

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
struct CUgraph_st;
struct CUgraphExec_st;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  size_t sharedMemPerBlockOptin;
  int multiProcessorCount;
  int major;
  int minor;
};

struct cudaLaunchAttribute {};
struct cudaLaunchConfig_t {
  simt::Extent gridDim;
  simt::Extent blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void* memory, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
// While a stream records, calls that would wait or take device memory fail, and so does the
// recording.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t recorded,
                                 unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct cudaIpcEventHandle_t {
  char reserved[64];
};
inline constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
// Works between processes of one user that all use the shim. As with CUDA, it does not work within
// one process.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory);
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* memory);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

namespace simt {

// The dynamic shared memory that a kernel may have by default, and the largest amount (compute
// capability 9.0).
inline constexpr size_t kSharedBytes = 48 << 10;
inline constexpr size_t kMostSharedBytes = 227 << 10;

cudaError_t AllowSharedMemory(const void* kernel, int bytes);
cudaError_t Enqueue(const void* kernel, const cudaLaunchConfig_t& config,
                    std::function<void()> body);

// For tests.
// Makes one call fail: the call with this number from now on, where 0 is the next one.
void FailCall(uint64_t number, cudaError_t error);
// Returns the name of the call that failed in this way, such as "cudaMalloc". Empty before it has
// failed.
const std::string& FailedCall();
// Makes all calls fail with cudaErrorIllegalAddress, beginning with the call of this number from
// now on.
void LoseDevice(uint64_t number);
// Changes the first byte of a copy from device memory: of the copy with this number from now on.
// Copies of rows with gaps do not count.
void SpoilCopyToHost(uint64_t number);
void FailNoCall();            // cancels all three
uint64_t NumCalls();          // number of calls to the runtime so far
size_t NumLive();             // allocations, pinned ranges, streams, events and graphs
uint64_t NumCopiesToHost();   // as SpoilCopyToHost counts
uint64_t NumBytesToHost();    // bytes copied from device memory so far
void SetSeed(uint64_t seed);  // seed of the order in which threads run
void SetDeviceCount(int count);
void SetMostSharedBytes(size_t bytes);  // at most kMostSharedBytes

}  // namespace simt

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int value) {
  return simt::AllowSharedMemory(reinterpret_cast<const void*>(kernel), value);
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  // Arguments are copied during the call, like in CUDA.
  std::tuple<Parameters...> copies(std::forward<Arguments>(arguments)...);
  return simt::Enqueue(reinterpret_cast<const void*>(kernel), *config,
                       [kernel, copies = std::move(copies)] { std::apply(kernel, copies); });
}
// NOLINTEND

#endif  // TANDEM_TESTS_SIMT_FAKE_RUNTIME_H_
