// absl::Status inside Tandem, grpc::Status on the wire: the one place where they meet.
#ifndef TANDEM_COMMON_RPC_GRPC_STATUS_H_
#define TANDEM_COMMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Codes are the same numbers in both.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status ToAbslStatus(const grpc::Status& status);

// What the worker protocol has a code for keeps it; anything else is INTERNAL.
v1::WorkerCode ToWorkerCode(absl::StatusCode code);
absl::Status ToAbslStatus(v1::WorkerCode code, const std::string& message);

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_GRPC_STATUS_H_
