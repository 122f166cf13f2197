// A CUDA graph: work of a stream that is recorded once and then started with one call (CUDA C++
// Programming Guide, "CUDA Graphs"). A kernel launch takes about two microseconds of the host, and
// a pass of a model has hundreds of them.
#ifndef TANDEM_KERNELS_DEVICE_DEVICE_GRAPH_H_
#define TANDEM_KERNELS_DEVICE_DEVICE_GRAPH_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device_stream.h"

struct CUgraphExec_st;

namespace tandem {

// Owns a graph. Its destructor does not wait, and started work goes on. Move-only.
class DeviceGraph {
 public:
  // Records the work that `enqueue` puts on `stream`. The stream does not execute it now. `enqueue`
  // runs in the calling thread and enqueues kernels and copies only. Every start uses the arguments
  // that they have now.
  //   RESOURCE_EXHAUSTED  There is no device memory for the graph.
  //   INTERNAL            Something was enqueued that cannot be recorded.
  // An error of `enqueue` is returned as it is. The stream is unchanged in all cases.
  static absl::StatusOr<DeviceGraph> Record(const DeviceStream& stream,
                                            absl::FunctionRef<absl::Status()> enqueue);
  DeviceGraph() = default;
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  DeviceGraph& operator=(DeviceGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }

  // Enqueues the recorded work. It begins when the start before it has ended.
  absl::Status Start(const DeviceStream& stream) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_DEVICE_GRAPH_H_
