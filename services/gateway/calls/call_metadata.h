// What a call of the router carries beside its message.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_CALL_METADATA_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_CALL_METADATA_H_

#include <string>

namespace tandem::gateway {

// gRPC ends the process at metadata that is not printable ASCII, so whoever fills these fields from
// a client's text checks it. Empty: none.
struct CallMetadata {
  std::string traceparent;
  std::string tenant;
  std::string token;  // the client's, if the gateway has none of its own
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_CALL_METADATA_H_
