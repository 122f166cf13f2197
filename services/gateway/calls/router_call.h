// What all calls of the router share: what they carry, and how they end.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CALL_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "services/gateway/api/answers/error_shape.h"

namespace tandem::gateway {

// What a call carries beside its message. gRPC ends the process at metadata that is not printable
// ASCII, so whoever fills these fields from a client's text checks it. Empty: none.
struct CallMetadata {
  std::string traceparent;
  std::string tenant;
  std::string token;  // the client's, if the gateway has none of its own
};

// Returns how a call with this context ended. Called after its status has come.
CallEnd EndOf(const grpc::ClientContext& context, const grpc::Status& status);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_ROUTER_CALL_H_
