// HTTP for operators on a port of its own: metrics, health, pages. It never shows data of clients.
#ifndef TANDEM_COMMON_ADMIN_ADMIN_SERVER_H_
#define TANDEM_COMMON_ADMIN_ADMIN_SERVER_H_

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

// Maps a path such as "/metrics" to its handler, which gets the text after the "?". The server's
// thread calls one handler at a time. Handlers must be fast, because other requests wait.
using AdminHandler = std::function<AdminResponse(const std::string& query)>;
using AdminRoutes = std::map<std::string, AdminHandler>;

// Limits on the resources that callers may take.
struct AdminLimits {
  // One more connection closes the connection that has waited longest for a request
  // (ConnectionPlaces), so that probes get through even if somebody holds connections open.
  int connections = 64;
  int connections_of_peer = 8;  // from one address; this machine's own addresses have no such limit
  int header_bytes = 8 << 10;
  double request_seconds = 10;  // time limit for sending a request, and for reading the answer
  double idle_seconds = 30;     // longest time between two requests
};

// HTTP/1.1 with keep-alive on one thread. With a certificate, the server speaks only TLS. It
// answers GET and HEAD of its routes, without a body, and answers anything else with 404, or with
// 405 and Allow. On a loopback address a request must name an IP address or localhost as its host,
// otherwise the answer is
// 421. So a page of another site cannot read here by a name that leads to this machine.
//
// With tokens, /healthz and /readyz stay open to everybody, because probes have no token. Every
// other page needs the token of an admin: without a token the answer is 401, and with a client's
// token it is
// 403. Tokens come as `Bearer`, or as the password of `Basic`, which browsers ask people for.
// Clients need no certificate, because probes have none.
class AdminServer {
 public:
  // Listens. INVALID_ARGUMENT: the address is not HOST:PORT. UNAVAILABLE: the address is taken, or
  // it is not an address of this machine.
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
  class Impl;  // keeps Boost's headers out of this header
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_ADMIN_ADMIN_SERVER_H_
