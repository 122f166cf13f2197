// Work of a stream that is recorded once and then started with one call: what CUDA calls a graph
// (CUDA C++ Programming Guide, "CUDA Graphs"). A kernel launch takes the host some two
// microseconds, and a pass of a model has hundreds.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_GRAPH_H_
#define TANDEM_KERNELS_CUDA_DEVICE_GRAPH_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_stream.h"

struct CUgraphExec_st;

namespace tandem {

// Move-only. Its end does not wait: what was started goes on.
class DeviceGraph {
 public:
  // Records what `enqueue` puts on `stream`, which does nothing of it now. Kernels and copies alone,
  // from the calling thread; each with the arguments that it has now, at every start.
  //   RESOURCE_EXHAUSTED  no device memory for the graph
  //   INTERNAL            something was enqueued that cannot be recorded
  // What `enqueue` returns, if that is an error. The stream is as before in all cases.
  static absl::StatusOr<DeviceGraph> Record(const DeviceStream& stream,
                                            absl::FunctionRef<absl::Status()> enqueue);
  DeviceGraph() = default;
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  DeviceGraph& operator=(DeviceGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }

  // Enqueues all of it. A start begins when the one before it has ended.
  absl::Status Start(const DeviceStream& stream) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_DEVICE_GRAPH_H_
