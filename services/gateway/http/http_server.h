// Accepts connections of HTTP clients.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_HTTP_SERVER_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_HTTP_SERVER_H_

#include <boost/asio/io_context.hpp>
#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "common/security/tls_files.h"
#include "services/gateway/http/http_service.h"
#include "services/gateway/limits/http_limits.h"

namespace tandem::gateway {

// Thread-safe. Several threads may run the io_context: each connection has a strand of its own.
class HttpServer {
 public:
  // Listens, and accepts connections once the io_context runs. INVALID_ARGUMENT: the address is a
  // Unix socket, or its host is unknown. UNAVAILABLE: the address is taken, or is not one of this
  // machine. `tls` is null for plaintext. `io` and `service` must outlive the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(boost::asio::io_context& io,
                                                            const Address& address,
                                                            std::shared_ptr<TlsFiles> tls,
                                                            const HttpLimits& limits,
                                                            HttpService* service);
  // PRECOND: the io_context has no more handlers.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int num_connections() const;

  // Accepts no more connections, closes those that have no request, and the others after their
  // present one. The io_context has nothing more to do for this server then.
  void Drain();
  // Closes all connections.
  void Close();

 private:
  class Impl;  // keeps Boost's headers out of this header
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_HTTP_SERVER_H_
