#include "kernels/device/device_graph.h"

#include <cuda_runtime.h>

#include "kernels/device/cuda_status.h"

namespace tandem {

absl::StatusOr<DeviceGraph> DeviceGraph::Record(const DeviceStream& stream,
                                                absl::FunctionRef<absl::Status()> enqueue) {
  // Other threads, such as those of the worker's rings, may allocate and wait during the recording.
  if (absl::Status status =
          CudaStatus(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                     "cudaStreamBeginCapture");
      !status.ok()) {
    return status;
  }
  absl::Status enqueued = enqueue();
  cudaGraph_t recorded = nullptr;
  // The stream must stop recording in any case.
  absl::Status status =
      CudaStatus(cudaStreamEndCapture(stream.get(), &recorded), "cudaStreamEndCapture");
  if (!enqueued.ok()) status = std::move(enqueued);
  DeviceGraph graph;
  if (status.ok()) {
    status = CudaStatus(cudaGraphInstantiate(&graph.graph_, recorded, 0), "cudaGraphInstantiate");
    if (!status.ok()) graph.graph_ = nullptr;
  }
  if (recorded != nullptr) {
    static_cast<void>(CudaStatus(cudaGraphDestroy(recorded), "cudaGraphDestroy"));
  }
  if (!status.ok()) return status;
  return graph;
}

DeviceGraph::~DeviceGraph() {
  if (graph_ == nullptr) return;
  static_cast<void>(CudaStatus(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy"));
}

absl::Status DeviceGraph::Start(const DeviceStream& stream) const {
  return CudaStatus(cudaGraphLaunch(graph_, stream.get()), "cudaGraphLaunch");
}

}  // namespace tandem
