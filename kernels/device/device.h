// Chooses the GPU of this process, or says why no GPU can be used.
#ifndef TANDEM_KERNELS_DEVICE_DEVICE_H_
#define TANDEM_KERNELS_DEVICE_DEVICE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Oldest compute capability for which the kernels are compiled: Ampere.
inline constexpr int kOldestCapability = 80;  // 10 * major + minor

struct DeviceInfo {
  int index = 0;
  std::string name;
  std::string uuid;    // UUID in hexadecimal; a MIG instance has its own
  int capability = 0;  // 10 * major + minor
  int num_multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t max_shared_bytes = 0;  // dynamic shared memory that a thread block may ask for
  int driver_version = 0;       // 1000 * major + 10 * minor of the CUDA that the driver knows
  int runtime_version = 0;      // the same number of the CUDA with which this program was linked
};

// Takes GPU `index` for this process. FAILED_PRECONDITION, with a message for the operator: there
// is no driver, the driver is too old, there is no GPU, there is no such index, or the GPU is older
// than kOldestCapability.
absl::StatusOr<DeviceInfo> UseDevice(int index);

// Returns the capability of the GPU that UseDevice has taken; 0: none.
int DeviceCapability();

// What the GPU that UseDevice has taken offers to thread blocks.
struct BlockLimits {
  int num_multiprocessors = 0;
  size_t max_shared_bytes = 0;  // dynamic shared memory that a thread block may ask for
};
// Returns the limits of a small GPU before UseDevice has taken one.
BlockLimits DeviceBlockLimits();

// Makes `index`, which UseDevice has taken, the current device of the calling thread. Each thread
// has a current device and may enqueue work only on that device's streams. The call is cheap.
absl::Status SelectDevice(int index);

// Returns whether the context of GPU `index`, which UseDevice has taken, is lost. After an illegal
// address, an Xid, or another process's fatal fault under MPS, every further call of this process
// fails until the process ends. Called after a call has failed. Waits for the device.
bool IsDeviceLost(int index);

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_DEVICE_H_
