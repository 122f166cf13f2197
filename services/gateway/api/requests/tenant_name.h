// The metadata `tandem-tenant` of a request, from its field `user`.
#ifndef TANDEM_SERVICES_GATEWAY_API_REQUESTS_TENANT_NAME_H_
#define TANDEM_SERVICES_GATEWAY_API_REQUESTS_TENANT_NAME_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::gateway {

// gRPC carries printable ASCII. Other bytes, blanks and % become %XX, so that a name of letters and
// digits is the same tenant as over gRPC. INVALID_ARGUMENT: the name has more than 256 bytes then.
absl::StatusOr<std::string> TenantName(std::string_view user);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_REQUESTS_TENANT_NAME_H_
