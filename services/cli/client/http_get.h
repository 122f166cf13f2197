// Reads a page of an admin server.
#ifndef TANDEM_SERVICES_CLI_CLIENT_HTTP_GET_H_
#define TANDEM_SERVICES_CLI_CLIENT_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"
#include "services/cli/client/client_security.h"

namespace tandem::cli {

// The body of http://HOST:PORT/PATH, or https where `security` has authorities. UNAVAILABLE: nobody
// answers there, or not within `seconds`, or it is not who its certificate should say;
// FAILED_PRECONDITION: an answer other than 200, or none of HTTP.
absl::StatusOr<std::string> HttpGet(const std::string& host, int port, const std::string& path,
                                    double seconds, const ClientSecurity& security = {});

// The same over TLS with whoever answers, whose certificate nobody looks at: for what is no secret,
// from this machine. No token is shown, and no certificate.
absl::StatusOr<std::string> HttpsGetFromAnyone(const std::string& host, int port,
                                               const std::string& path, double seconds);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_HTTP_GET_H_
