// HTTP for operators, on a port of its own: metrics, health, pages. Never what clients send or get.
#ifndef TANDEM_COMMON_METRICS_ADMIN_SERVER_H_
#define TANDEM_COMMON_METRICS_ADMIN_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "common/security/server_security.h"

namespace tandem {

struct AdminResponse {
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
  int status = 200;
};

// A path, as "/metrics", to what answers it, given what follows a "?". Called by the server's
// thread, one at a time; fast, as others wait.
using AdminHandler = std::function<AdminResponse(const std::string& query)>;
using AdminRoutes = std::map<std::string, AdminHandler>;

// What a caller may cost.
struct AdminLimits {
  // One more closes the one that has waited longest for a request (ConnectionPlaces), so that probes
  // get through whoever holds connections open.
  int connections = 64;
  int connections_of_peer = 8;  // from one address, unless it is this machine's own
  int header_bytes = 8 << 10;
  double request_seconds = 10;  // to send a request, and to take the answer
  double idle_seconds = 30;     // from one request to the next
};

// HTTP/1.1 with keep-alive, on one thread; over TLS alone where there is a certificate. GET and HEAD
// of the routes alone, without a body: anything else is answered with 404, or 405 and Allow. On a
// loopback address a request must name an IP address or localhost as its host, else 421: no other
// site's page can read here by a name that leads to this machine.
//
// Where there are tokens, /healthz and /readyz are for all, for who asks them has none, and whatever
// else is asked for needs an admin's: else 401, or 403 to a client's. Tokens come as `Bearer`, or as
// the password of `Basic`, which browsers ask people for. Certificates of clients are not asked for:
// probes have none.
class AdminServer {
 public:
  // Listens. INVALID_ARGUMENT: not HOST:PORT; UNAVAILABLE: the address is taken, or no machine's.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const Address& address,
                                                            AdminRoutes routes,
                                                            const AdminLimits& limits = {},
                                                            ServerSecurity security = {});
  // Ends all connections.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // HOST:PORT, with the real port.
  const std::string& address() const;
  // http://HOST:PORT, or https.
  std::string url() const;

 private:
  class Impl;  // keeps Boost's headers out of here
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_METRICS_ADMIN_SERVER_H_
