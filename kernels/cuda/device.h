// Which GPU is used, and why none is.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_H_
#define TANDEM_KERNELS_CUDA_DEVICE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Oldest compute capability that the kernels are compiled for: Ampere.
inline constexpr int kOldestCapability = 80;  // 10 * major + minor

struct DeviceInfo {
  int index = 0;
  std::string name;
  std::string uuid;    // in hexadecimal; of a MIG instance its own
  int capability = 0;  // 10 * major + minor
  int num_multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t max_shared_bytes = 0;  // dynamic shared memory that a block may ask for
  int driver_version = 0;       // 1000 * major + 10 * minor of the CUDA that the driver knows
  int runtime_version = 0;      // that this program was linked with
};

// Takes GPU `index` for the calling thread's process. FAILED_PRECONDITION, in words for the
// operator: no driver, one that is too old, no GPU, no such index, or a GPU older than
// kOldestCapability.
absl::StatusOr<DeviceInfo> UseDevice(int index);

// Makes `index`, which UseDevice has taken, the calling thread's too: each thread has a current
// device, and what it enqueues must be on a stream of that. Cheap.
absl::Status SelectDevice(int index);

// Whether the context of GPU `index`, which UseDevice has taken, is lost: after an illegal address,
// an Xid, or another process's fatal fault under MPS, each further call of this process fails, and
// nothing but its end mends that. To be asked when a call has failed. Waits for the device.
bool IsDeviceLost(int index);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_DEVICE_H_
