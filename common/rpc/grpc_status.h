// Conversion of absl::Status, which Tandem uses inside, to the statuses on the wire.
#ifndef TANDEM_COMMON_RPC_GRPC_STATUS_H_
#define TANDEM_COMMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The codes have the same numbers in both classes.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that the worker protocol has stays the same. Any other code becomes INTERNAL.
v1::WorkerCode ToWorkerCode(absl::StatusCode code);

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_GRPC_STATUS_H_
