// The backend "cuda" of the workers.
#ifndef TANDEM_SERVICES_WORKER_CUDA_BACKEND_H_
#define TANDEM_SERVICES_WORKER_CUDA_BACKEND_H_

#include "absl/status/statusor.h"
#include "services/worker/worker_model.h"

namespace tandem {

// A DeviceModelLoader. Logs the progress of loading large weights.
absl::StatusOr<DeviceModel> LoadOnGpu(const WorkerModelOptions& options);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_CUDA_BACKEND_H_
