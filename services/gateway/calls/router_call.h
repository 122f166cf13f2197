// What all calls of the router share: their context, and how they end.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CALL_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "services/gateway/api/answers/error_shape.h"

namespace tandem::gateway {

// Returns how a call with this context ended. Called after its status has come.
CallEnd EndOf(const grpc::ClientContext& context, const grpc::Status& status);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CALL_H_
