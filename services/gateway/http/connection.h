// One connection of a client: its requests and answers, in their order.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_CONNECTION_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_CONNECTION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "services/gateway/http/http_service.h"
#include "services/gateway/limits/byte_budget.h"
#include "services/gateway/limits/http_limits.h"
#include "services/gateway/limits/lane.h"

namespace tandem::gateway {

// What all connections share. It outlives them.
struct ConnectionContext {
  ConnectionContext(const HttpLimits& of_all, HttpService* of_requests)
      : limits(of_all), service(*of_requests), budget(of_all.all_held_bytes) {}

  const HttpLimits limits;
  HttpService& service;
  ByteBudget budget;
  Lane large_bodies;
};

// A connection keeps itself alive until it waits for nothing more. It always reads while it has
// room for it, so that it notices when the client leaves. What arrives during an answer waits in a
// buffer of limited size for its turn.
class Connection {
 public:
  virtual ~Connection() = default;

  // Called once, on any thread.
  virtual void Begin() = 0;
  // Thread-safe. Closes the connection as soon as it has no request.
  virtual void Drain() = 0;
  // Thread-safe. Closes the connection at once.
  virtual void Close() = 0;
};

// `socket` has a strand as its executor. `tls` is null for plaintext. `on_closed` is called once,
// by the destructor.
std::shared_ptr<Connection> MakeConnection(boost::asio::ip::tcp::socket socket,
                                           const std::shared_ptr<boost::asio::ssl::context>& tls,
                                           ConnectionContext& context,
                                           std::function<void()> on_closed);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_CONNECTION_H_
