// Reads a page of an admin server.
#ifndef TANDEM_SERVICES_CLI_HTTP_GET_H_
#define TANDEM_SERVICES_CLI_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem::cli {

// The body of http://HOST:PORT/PATH. UNAVAILABLE: nobody answers there, or not within `seconds`;
// FAILED_PRECONDITION: an answer other than 200, or none of HTTP.
absl::StatusOr<std::string> HttpGet(const std::string& host, int port, const std::string& path,
                                    double seconds);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_HTTP_GET_H_
