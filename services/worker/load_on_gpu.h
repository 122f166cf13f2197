// Loads a model on a GPU: the workers' backend "cuda".
#ifndef TANDEM_SERVICES_WORKER_LOAD_ON_GPU_H_
#define TANDEM_SERVICES_WORKER_LOAD_ON_GPU_H_

#include "absl/status/statusor.h"
#include "services/worker/worker_model.h"

namespace tandem {

// A DeviceModelLoader. Logs the progress of loading large weights.
absl::StatusOr<DeviceModel> LoadOnGpu(const WorkerModelOptions& options);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_LOAD_ON_GPU_H_
