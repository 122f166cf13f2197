// Times work on a device by its events.
#ifndef TANDEM_BENCH_SUPPORT_DEVICE_TIMER_H_
#define TANDEM_BENCH_SUPPORT_DEVICE_TIMER_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device_stream.h"

namespace tandem::bench {

double MedianOf(std::vector<double> values);

// One entry for each repetition.
struct DeviceSeconds {
  std::vector<double> device;
  std::vector<double> enqueue;  // time of the host
};

// Measures each function of `enqueue` in turn, `repeats` times. Two earlier rounds warm up and
// record graphs. Returns an entry for each function.
absl::StatusOr<std::vector<DeviceSeconds>> MeasureOnDevice(
    const DeviceStream& stream, size_t repeats,
    const std::vector<std::function<absl::Status()>>& enqueue);

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_DEVICE_TIMER_H_
