// A check of calls whose handlers are not ours (health, reflection), or whose handlers all need the
// same check.
#ifndef TANDEM_COMMON_SECURITY_CALL_INTERCEPTOR_H_
#define TANDEM_COMMON_SECURITY_CALL_INTERCEPTOR_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/security/call_gate.h"

namespace tandem {

// gRPC's threads call the check once for each call, as soon as the call's metadata has arrived.
using CallCheck =
    std::function<absl::Status(std::string_view method, grpc::ServerContextBase& context)>;

// Makes the server of `builder` ask `check` about each call, except for the methods `without`. The
// handlers of these methods ask for themselves: only they can refuse before anything was done, and
// a check costs a little for each message of a stream. A refused unary call ends with the check's
// status and an empty reply. A call of an unknown method also ends with that status. A refused
// stream is CANCELLED. Call this function once for each builder.
void InterceptCalls(grpc::ServerBuilder& builder, CallCheck check,
                    std::vector<std::string> without = {});

// Returns the answer of `gate` for a call with this context's metadata.
absl::Status CheckCall(CallGate& gate, std::string_view method,
                       const grpc::ServerContextBase& context);

// Returns PERMISSION_DENIED unless the client's certificate is for `name` (a DNS name among its
// subject alternative names).
absl::Status CheckClientName(const std::string& name, const grpc::ServerContextBase& context);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_CALL_INTERCEPTOR_H_
