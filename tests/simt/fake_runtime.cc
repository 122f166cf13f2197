#include "tests/simt/fake_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#if defined(TANDEM_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#endif

// The counts of an event. Work on a stream refers to them, so they outlive the event, which may be
// destroyed before it is reached. The memory is shared between processes if the event is an
// interprocess event.
struct Counts {
  std::atomic<uint64_t> num_recorded = 0;
  std::atomic<uint64_t> num_reached = 0;
};
struct Record {
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  std::chrono::steady_clock::time_point reached_at;
  CUstream_st* stream = nullptr;  // stream of the last record in this process
};
struct CUevent_st {
  std::shared_ptr<Record> record = std::make_shared<Record>();
  int fd = -1;  // descriptor of the shared counts
};

using Work = std::function<void()>;

struct CUstream_st {
  std::deque<Work> work;
  // The work that was enqueued during a recording, and whether the recording is still valid.
  bool is_recording = false;
  bool is_recording_valid = true;
  std::vector<Work> recorded;
};
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace {

constexpr size_t kDeviceBytes = size_t{1} << 30;

// Device memory is a memfd, so that other processes can map it.
struct Allocation {
  size_t bytes = 0;
  int fd = -1;
};

// Names memory or an event in another process.
struct SharedFile {
  pid_t pid = 0;
  int fd = -1;
  size_t bytes = 0;
};

size_t Rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Returns -1 if there is no memory.
int MakeFile(size_t bytes) {
  const int fd = memfd_create("tandem-simt", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(Rounded(bytes))) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void* Map(int fd, size_t bytes) {
  void* const memory = mmap(nullptr, Rounded(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Returns null if the file belongs to this process or is gone.
void* MapOfOther(const SharedFile& file) {
  if (file.pid == getpid()) return nullptr;
  const std::string path = "/proc/" + std::to_string(file.pid) + "/fd/" + std::to_string(file.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const memory = Map(fd, file.bytes);
  close(fd);
  return memory;
}

std::shared_ptr<Counts> SharedCounts(void* memory) {
  return {static_cast<Counts*>(memory),
          [](Counts* counts) { munmap(counts, Rounded(sizeof(Counts))); }};
}

template <typename Handle>
void Write(const SharedFile& file, Handle* handle) {
  *handle = {};
  std::memcpy(handle->reserved, &file, sizeof(file));
}

template <typename Handle>
SharedFile Read(const Handle& handle) {
  SharedFile file;
  std::memcpy(&file, handle.reserved, sizeof(file));
  return file;
}

// The one device of the process, and everything that was taken from it.
struct FakeDevice {
  std::map<void*, Allocation> memory;
  std::map<void*, size_t> imported;
  std::map<void*, size_t> host_memory;
  std::map<void*, size_t> pinned;  // memory of other owners
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> recorded_graphs;
  std::set<CUgraphExec_st*> graphs;
  uint64_t bytes_to_host = 0;
  uint64_t copies_to_host = 0;
  uint64_t spoiled_copy = ~uint64_t{0};
  std::map<const void*, size_t> shared_limits;  // limits of kernels that asked for more
  size_t used = 0;
  size_t most_shared_bytes = simt::kMostSharedBytes;
  int count = 1;
  uint64_t num_calls = 0;
  uint64_t failing_call = ~uint64_t{0};
  cudaError_t failure = cudaSuccess;
  std::string failed_call;
  uint64_t first_lost_call = ~uint64_t{0};
  cudaError_t last_error = cudaSuccess;
  uint64_t seed = 1;
};

FakeDevice& Device() {
  static FakeDevice device;
  return device;
}

// See TANDEM_SIMT_LOSSES in the header.
bool IsLossDue() {
  static const char* const folder = std::getenv("TANDEM_SIMT_LOSSES");
  if (folder == nullptr) return false;
  static const std::string file =
      std::string(folder).append("/").append(program_invocation_short_name);
  return unlink(file.c_str()) == 0;
}

// Begins every call, and returns its result: the planted failure if it is this call's turn. A call
// that gives something back still does so, like CUDA's calls when they report an earlier error.
//   call  name of the call; by default the caller's name
cudaError_t Begin(const char* call = __builtin_FUNCTION()) {
  FakeDevice& device = Device();
  const uint64_t number = device.num_calls++;
  if (IsLossDue()) device.first_lost_call = number;
  if (number >= device.first_lost_call) {
    for (CUstream_st* stream : device.streams) stream->work.clear();  // the work is never done
    return device.last_error = cudaErrorIllegalAddress;
  }
  if (number != device.failing_call) return cudaSuccess;
  device.failing_call = ~uint64_t{0};
  device.failed_call = call;
  return device.last_error = device.failure;
}

// Held during every call. Several threads may call the runtime, as they may call CUDA's: tests run
// two workers in one process.
class Turn {
 public:
  Turn() : lock_(Mutex()) {}

 private:
  static std::recursive_mutex& Mutex() {
    static std::recursive_mutex mutex;
    return mutex;
  }
  const std::lock_guard<std::recursive_mutex> lock_;
};

cudaError_t Refuse(cudaError_t error) { return Device().last_error = error; }

// Only kernels and copies may touch device memory.
class DeviceAccess {
 public:
  DeviceAccess() {
    for (const auto& [memory, taken] : Device().memory) {
      ASAN_UNPOISON_MEMORY_REGION(memory, taken.bytes);
    }
  }
  ~DeviceAccess() {
    for (const auto& [memory, taken] : Device().memory) {
      ASAN_POISON_MEMORY_REGION(memory, taken.bytes);
    }
  }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

bool IsOfDevice(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  const auto holds = [&](const void* memory, size_t bytes) {
    return at >= static_cast<const char*>(memory) && at < static_cast<const char*>(memory) + bytes;
  };
  const FakeDevice& device = Device();
  return std::any_of(device.memory.begin(), device.memory.end(),
                     [&](const auto& taken) { return holds(taken.first, taken.second.bytes); }) ||
         std::any_of(device.imported.begin(), device.imported.end(),
                     [&](const auto& taken) { return holds(taken.first, taken.second); });
}

void Put(CUstream_st* stream, Work work) {
  if (stream->is_recording) {
    stream->recorded.push_back(std::move(work));
  } else {
    stream->work.push_back(std::move(work));
  }
}

// Returns true if a stream is recording. The current call then spoils the recording.
bool SpoilsRecording() {
  bool spoils = false;
  for (CUstream_st* stream : Device().streams) {
    if (!stream->is_recording) continue;
    stream->is_recording_valid = false;
    spoils = true;
  }
  return spoils;
}

void DoNext(CUstream_st* stream) {
  const Work next = std::move(stream->work.front());
  stream->work.pop_front();
  next();
}

void DoAll(CUstream_st* stream) {
  while (!stream->work.empty()) DoNext(stream);
}

void Reach(Record* event, uint64_t record) {
  while (event->counts->num_reached < record && event->stream != nullptr &&
         !event->stream->work.empty()) {
    DoNext(event->stream);
  }
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
  }
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetLastError() {
  const Turn turn;
  return std::exchange(Device().last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  *count = Device().count;
  return Device().count > 0 ? cudaSuccess : Refuse(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  return device >= 0 && device < Device().count ? cudaSuccess : Refuse(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceSynchronize() {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  for (CUstream_st* stream : Device().streams) DoAll(stream);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (device < 0 || device >= Device().count) return Refuse(cudaErrorInvalidDevice);
  *properties = {};
  std::strncpy(properties->name, "SIMT shim", sizeof(properties->name) - 1);
  properties->totalGlobalMem = kDeviceBytes;
  properties->sharedMemPerBlockOptin = Device().most_shared_bytes;
  properties->multiProcessorCount = 2;
  properties->major = 9;
  std::memcpy(properties->uuid.bytes, "tandem-simt-shim", sizeof(properties->uuid.bytes));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  *total = kDeviceBytes;
  *free = kDeviceBytes - Device().used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  FakeDevice& device = Device();
  if (bytes > kDeviceBytes - device.used) return Refuse(cudaErrorMemoryAllocation);
  const int fd = MakeFile(bytes);
  void* const block = fd < 0 ? nullptr : Map(fd, bytes);
  if (block == nullptr) {
    if (fd >= 0) close(fd);
    return Refuse(cudaErrorMemoryAllocation);
  }
  std::memset(block, 0xFF, bytes);
  device.memory[block] = {bytes, fd};
  device.used += bytes;
  ASAN_POISON_MEMORY_REGION(block, Rounded(bytes));
  *memory = block;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (memory == nullptr) return earlier;
  FakeDevice& device = Device();
  const auto found = device.memory.find(memory);
  if (found == device.memory.end()) return Refuse(cudaErrorInvalidValue);
  for (CUstream_st* stream : device.streams) DoAll(stream);  // the call waits for the device
  const Allocation taken = found->second;
  ASAN_UNPOISON_MEMORY_REGION(memory, Rounded(taken.bytes));
  device.used -= taken.bytes;
  device.memory.erase(found);
  munmap(memory, Rounded(taken.bytes));
  close(taken.fd);
  return earlier;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  *memory = std::malloc(std::max<size_t>(bytes, 1));
  if (*memory == nullptr) return Refuse(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xFF, bytes);
  Device().host_memory[*memory] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (memory == nullptr) return earlier;
  if (Device().host_memory.erase(memory) == 0) return Refuse(cudaErrorInvalidValue);
  std::free(memory);
  return earlier;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0 || !Device().pinned.try_emplace(memory, bytes).second) {
    return Refuse(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (Device().pinned.erase(memory) == 0) return Refuse(cudaErrorInvalidValue);
  return earlier;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  Put(stream, [=] {
    const DeviceAccess access;
    std::memcpy(to, from, bytes);
    if (!IsOfDevice(from) || IsOfDevice(to)) return;
    Device().bytes_to_host += bytes;
    if (bytes > 0 && Device().copies_to_host++ == Device().spoiled_copy) {
      *static_cast<uint8_t*>(to) ^= 1;
    }
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (width > to_pitch || width > from_pitch) return Refuse(cudaErrorInvalidValue);
  Put(stream, [=] {
    const DeviceAccess access;
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(from) + row * from_pitch, width);
    }
    if (IsOfDevice(from) && !IsOfDevice(to)) Device().bytes_to_host += width * height;
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  Put(stream, [=] {
    const DeviceAccess access;
    std::memset(memory, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* memory, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (width > pitch) return Refuse(cudaErrorInvalidValue);
  Put(stream, [=] {
    const DeviceAccess access;
    for (size_t row = 0; row < height; ++row) {
      std::memset(static_cast<char*>(memory) + row * pitch, value, width);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  *stream = new CUstream_st;
  Device().streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (Device().streams.erase(stream) == 0) return Refuse(cudaErrorInvalidResourceHandle);
  DoAll(stream);
  for (CUevent_st* event : Device().events) {
    if (event->record->stream == stream) event->record->stream = nullptr;
  }
  delete stream;
  return earlier;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  if (Device().streams.count(stream) == 0) return Refuse(cudaErrorInvalidResourceHandle);
  DoAll(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (stream->is_recording) return Refuse(cudaErrorStreamCaptureUnsupported);
  stream->is_recording = true;
  stream->is_recording_valid = true;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  *graph = nullptr;
  if (!stream->is_recording) return Refuse(cudaErrorInvalidValue);
  std::vector<Work> recorded = std::exchange(stream->recorded, {});
  stream->is_recording = false;
  if (earlier != cudaSuccess) return earlier;
  if (!stream->is_recording_valid) return Refuse(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(recorded)};
  Device().recorded_graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t recorded, unsigned long long) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (Device().recorded_graphs.count(recorded) == 0) return Refuse(cudaErrorInvalidValue);
  *graph = new CUgraphExec_st{recorded->work};
  Device().graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (Device().recorded_graphs.erase(graph) == 0) return Refuse(cudaErrorInvalidValue);
  delete graph;
  return earlier;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (Device().graphs.erase(graph) == 0) return Refuse(cudaErrorInvalidValue);
  delete graph;  // work that was started from the graph is on its stream
  return earlier;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (Device().graphs.count(graph) == 0) return Refuse(cudaErrorInvalidValue);
  for (const Work& work : graph->work) Put(stream, work);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  auto made = std::make_unique<CUevent_st>();
  if ((flags & cudaEventInterprocess) != 0) {
    if ((flags & cudaEventDisableTiming) == 0) return Refuse(cudaErrorInvalidValue);
    made->fd = MakeFile(sizeof(Counts));
    void* const memory = made->fd < 0 ? nullptr : Map(made->fd, sizeof(Counts));
    if (memory == nullptr) return Refuse(cudaErrorMemoryAllocation);
    made->record->counts = SharedCounts(new (memory) Counts);
  }
  *event = made.release();
  Device().events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  if (Device().events.erase(event) == 0) return Refuse(cudaErrorInvalidResourceHandle);
  if (event->fd >= 0) close(event->fd);
  delete event;
  return earlier;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  const uint64_t number = ++event->record->counts->num_recorded;
  event->record->stream = stream;
  stream->work.emplace_back([record = event->record, number] {
    Counts& counts = *record->counts;
    counts.num_reached = std::max(counts.num_reached.load(), number);
    record->reached_at = std::chrono::steady_clock::now();
  });
  // If no work precedes the event, it is reached at once, and other processes may see that.
  if (stream->work.size() == 1) DoAll(stream);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  Record& record = *event->record;
  if (record.counts->num_reached >= record.counts->num_recorded) return cudaSuccess;
  // To simulate time, each query does one piece of work.
  if (record.stream != nullptr && !record.stream->work.empty()) DoNext(record.stream);
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (SpoilsRecording()) return Refuse(cudaErrorStreamCaptureUnsupported);
  Reach(event->record.get(), event->record->counts->num_recorded);
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  const auto found = Device().memory.find(memory);
  if (found == Device().memory.end()) return Refuse(cudaErrorInvalidValue);
  Write({getpid(), found->second.fd, found->second.bytes}, handle);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  const SharedFile file = Read(handle);
  *memory = MapOfOther(file);
  if (*memory == nullptr) return Refuse(cudaErrorInvalidResourceHandle);
  Device().imported[*memory] = file.bytes;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  const Turn turn;
  const cudaError_t earlier = Begin();
  const auto found = Device().imported.find(memory);
  if (found == Device().imported.end()) return Refuse(cudaErrorInvalidValue);
  for (CUstream_st* stream : Device().streams) DoAll(stream);  // the call waits for the device
  munmap(memory, Rounded(found->second));
  Device().imported.erase(found);
  return earlier;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  if (event->fd < 0) return Refuse(cudaErrorInvalidResourceHandle);
  Write({getpid(), event->fd, sizeof(Counts)}, handle);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  void* const memory = MapOfOther(Read(handle));
  if (memory == nullptr) return Refuse(cudaErrorInvalidResourceHandle);
  *event = new CUevent_st;
  (*event)->record->counts = SharedCounts(memory);
  Device().events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Turn turn;
  if (const cudaError_t error = Begin(); error != cudaSuccess) return error;
  for (const cudaEvent_t event : {start, end}) {
    const Counts& counts = *event->record->counts;
    if (counts.num_recorded == 0) return Refuse(cudaErrorInvalidResourceHandle);
    if (counts.num_reached < counts.num_recorded) return cudaErrorNotReady;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->record->reached_at - start->record->reached_at)
          .count();
  return cudaSuccess;
}

namespace simt {

cudaError_t AllowSharedMemory(const void* kernel, int bytes) {
  const Turn turn;
  if (const cudaError_t error = Begin("cudaFuncSetAttribute"); error != cudaSuccess) return error;
  if (bytes < 0 || static_cast<size_t>(bytes) > Device().most_shared_bytes)
    return Refuse(cudaErrorInvalidValue);
  Device().shared_limits[kernel] = static_cast<size_t>(bytes);
  return cudaSuccess;
}

cudaError_t Enqueue(const void* kernel, const cudaLaunchConfig_t& config,
                    std::function<void()> body) {
  const Turn turn;
  if (const cudaError_t error = Begin("cudaLaunchKernelEx"); error != cudaSuccess) return error;
  FakeDevice& device = Device();
  const auto limit = device.shared_limits.find(kernel);
  const size_t most_shared =
      std::max(kSharedBytes, limit == device.shared_limits.end() ? 0 : limit->second);
  const size_t threads = config.blockDim.count();
  if (threads == 0 || threads > 1024 || config.gridDim.count() == 0 || config.gridDim.y > 65535 ||
      config.gridDim.z > 65535 || config.dynamicSmemBytes > most_shared ||
      device.streams.count(config.stream) == 0) {
    return Refuse(cudaErrorInvalidValue);
  }
  Put(config.stream, [config, body = std::move(body)] {
    const DeviceAccess access;
    Run(config.gridDim, config.blockDim, config.dynamicSmemBytes, Device().seed++, body);
  });
  return cudaSuccess;
}

void FailCall(uint64_t number, cudaError_t error) {
  Device().failing_call = Device().num_calls + number;
  Device().failure = error;
  Device().failed_call.clear();
}
const std::string& FailedCall() { return Device().failed_call; }
void LoseDevice(uint64_t number) { Device().first_lost_call = Device().num_calls + number; }
void SpoilCopyToHost(uint64_t number) { Device().spoiled_copy = Device().copies_to_host + number; }
void FailNoCall() {
  Device().spoiled_copy = ~uint64_t{0};
  Device().failing_call = ~uint64_t{0};
  Device().first_lost_call = ~uint64_t{0};
}
uint64_t NumCalls() { return Device().num_calls; }
uint64_t NumCopiesToHost() { return Device().copies_to_host; }
uint64_t NumBytesToHost() { return Device().bytes_to_host; }
size_t NumLive() {
  const FakeDevice& device = Device();
  return device.memory.size() + device.host_memory.size() + device.pinned.size() +
         device.streams.size() + device.events.size() + device.imported.size() +
         device.recorded_graphs.size() + device.graphs.size();
}
void SetSeed(uint64_t seed) { Device().seed = seed; }
void SetDeviceCount(int count) { Device().count = count; }
void SetMostSharedBytes(size_t bytes) { Device().most_shared_bytes = bytes; }

}  // namespace simt
