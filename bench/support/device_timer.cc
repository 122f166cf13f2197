#include "bench/support/device_timer.h"

#include <algorithm>
#include <chrono>

#include "common/status.h"

namespace tandem::bench {
namespace {

// Adds the seconds that the enqueued work takes.
absl::Status MeasureOnce(const DeviceStream& stream, const DeviceEvent& begin,
                         const DeviceEvent& end, const std::function<absl::Status()>& enqueue,
                         DeviceSeconds* seconds) {
  const auto started = std::chrono::steady_clock::now();
  TANDEM_RETURN_IF_ERROR(begin.Record(stream));
  TANDEM_RETURN_IF_ERROR(enqueue());
  TANDEM_RETURN_IF_ERROR(end.Record(stream));
  seconds->enqueue.push_back(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  TANDEM_RETURN_IF_ERROR(stream.Wait());
  TANDEM_ASSIGN_OR_RETURN(const double each, end.SecondsSince(begin));
  seconds->device.push_back(each);
  return absl::OkStatus();
}

}  // namespace

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::StatusOr<std::vector<DeviceSeconds>> MeasureOnDevice(
    const DeviceStream& stream, size_t repeats,
    const std::vector<std::function<absl::Status()>>& enqueue) {
  TANDEM_ASSIGN_OR_RETURN(const DeviceEvent begin, DeviceEvent::Create(/*timed=*/true));
  TANDEM_ASSIGN_OR_RETURN(const DeviceEvent end, DeviceEvent::Create(/*timed=*/true));
  std::vector<DeviceSeconds> seconds(enqueue.size());
  for (size_t i = 0; i < repeats + 2; ++i) {
    for (size_t k = 0; k < enqueue.size(); ++k) {
      DeviceSeconds warm_up;
      TANDEM_RETURN_IF_ERROR(
          MeasureOnce(stream, begin, end, enqueue[k], i < 2 ? &warm_up : &seconds[k]));
    }
  }
  return seconds;
}

}  // namespace tandem::bench
