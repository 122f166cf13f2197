#include "common/rpc/grpc_status.h"

#include <string>

namespace tandem {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

v1::WorkerCode ToWorkerCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return v1::WORKER_CODE_OK;
    case absl::StatusCode::kAborted:
      return v1::WORKER_CODE_ABORTED;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return v1::WORKER_CODE_INVALID_ARGUMENT;
    case absl::StatusCode::kResourceExhausted:
      return v1::WORKER_CODE_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kDataLoss:
      return v1::WORKER_CODE_NON_FINITE_LOGITS;
    case absl::StatusCode::kFailedPrecondition:
      return v1::WORKER_CODE_FAILED_PRECONDITION;
    default:
      return v1::WORKER_CODE_INTERNAL;
  }
}

}  // namespace tandem
