// The gateway process: the HTTP server, the client of the router, and the end of both.
#ifndef TANDEM_SERVICES_GATEWAY_SERVER_GATEWAY_SERVER_H_
#define TANDEM_SERVICES_GATEWAY_SERVER_GATEWAY_SERVER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "services/gateway/server/gateway_options.h"

namespace tandem::gateway {

// Serves until SIGTERM or SIGINT. Then it takes no more connections and requests, and running ones
// have --drain-seconds to end. A second signal ends them at once. `on_listening` is called once,
// with the address that clients can use.
absl::Status RunGateway(const GatewayOptions& options,
                        const std::function<void(const std::string& address)>& on_listening);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_SERVER_GATEWAY_SERVER_H_
