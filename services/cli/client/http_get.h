// Reads a page of an admin server.
#ifndef TANDEM_SERVICES_CLI_CLIENT_HTTP_GET_H_
#define TANDEM_SERVICES_CLI_CLIENT_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"
#include "services/cli/client/client_security.h"

namespace tandem::cli {

// Returns the body of http://HOST:PORT/PATH, or of the https page if `security` has authorities.
// UNAVAILABLE: nobody answers within `seconds`, or the certificate does not belong to the host.
// FAILED_PRECONDITION: the answer is not 200, or is not HTTP.
absl::StatusOr<std::string> HttpGet(const std::string& host, int port, const std::string& path,
                                    double seconds, const ClientSecurity& security = {});

// Does the same over TLS without checking the certificate, and sends neither a token nor a
// certificate. Use this function only on this machine and for pages that are no secret.
absl::StatusOr<std::string> HttpsGetFromAnyone(const std::string& host, int port,
                                               const std::string& path, double seconds);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_HTTP_GET_H_
