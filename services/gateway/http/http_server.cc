#include "services/gateway/http/http_server.h"

#include <spdlog/spdlog.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/monotonic_seconds.h"
#include "common/status.h"
#include "services/gateway/http/answer_head.h"
#include "services/gateway/http/connection.h"
#include "services/gateway/http/tls_contexts.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr double kTurnedAwayLogSeconds = 1;

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  Impl(asio::io_context& io, std::shared_ptr<TlsFiles> tls, const HttpLimits& limits,
       HttpService* service)
      : io_(io),
        acceptor_(asio::make_strand(io)),
        pause_(acceptor_.get_executor()),
        context_(std::make_unique<ConnectionContext>(limits, service)) {
    if (tls != nullptr) tls_.emplace(std::move(tls));
  }

  void Bind(const tcp::endpoint& endpoint) {
    acceptor_.open(endpoint.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(endpoint);
    acceptor_.listen();
  }

  int port() const { return acceptor_.local_endpoint().port(); }

  int num_connections() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(connections_.size());
  }

  void Accept() {
    acceptor_.async_accept(
        asio::make_strand(io_), [self = shared_from_this()](const error_code& error, auto socket) {
          if (!self->acceptor_.is_open() || error == asio::error::operation_aborted) return;
          if (error) return self->AcceptLater();
          self->Begin(tcp::socket(std::move(socket)));
          self->Accept();
        });
  }

  void Drain() {
    asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
      error_code ignored;
      self->acceptor_.close(ignored);
      self->pause_.cancel();
      for (const auto& connection : self->Connections()) connection->Drain();
    });
  }

  void Close() {
    asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
      for (const auto& connection : self->Connections()) connection->Close();
    });
  }

 private:
  std::vector<std::shared_ptr<Connection>> Connections() {
    std::vector<std::shared_ptr<Connection>> open;
    const std::lock_guard lock(mutex_);
    for (const auto& [number, connection] : connections_) {
      if (auto alive = connection.lock()) open.push_back(std::move(alive));
    }
    return open;
  }

  void Begin(tcp::socket socket) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (num_connections() >= context_->limits.connections) return TurnAway(std::move(socket));
    std::shared_ptr<asio::ssl::context> tls;
    if (tls_.has_value()) {
      tls = tls_->Current();
      if (tls == nullptr) return;
    }
    const uint64_t number = ++last_number_;
    const auto connection =
        MakeConnection(std::move(socket), tls, *context_, [self = shared_from_this(), number] {
          const std::lock_guard lock(self->mutex_);
          self->connections_.erase(number);
        });
    {
      const std::lock_guard lock(mutex_);
      connections_[number] = connection;
    }
    connection->Begin();
  }

  // Tells a client why, as far as the socket takes it at once. Over TLS the connection just closes.
  void TurnAway(tcp::socket socket) {
    ++num_turned_away_;
    if (!tls_.has_value()) {
      const HttpAnswer answer = context_->service.ErrorAnswer(503, "too many connections are open");
      const std::string text = AnswerHead(answer, "", false) + answer.body;
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(text), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
    }
    if (const double now = MonotonicSeconds(); now >= logged_at_ + kTurnedAwayLogSeconds) {
      spdlog::warn("connections: {} turned away: --max-connections is {}",
                   num_turned_away_ - num_logged_, context_->limits.connections);
      num_logged_ = num_turned_away_;
      logged_at_ = now;
    }
  }

  // Usually no descriptors are left, so another connection must end first.
  void AcceptLater() {
    pause_.expires_after(std::chrono::milliseconds(100));
    pause_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && self->acceptor_.is_open()) self->Accept();
    });
  }

  asio::io_context& io_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  const std::unique_ptr<ConnectionContext> context_;
  std::optional<TlsContexts> tls_;
  uint64_t last_number_ = 0;
  uint64_t num_turned_away_ = 0;
  uint64_t num_logged_ = 0;  // turned away connections that the log has
  double logged_at_ = 0;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Connection>> connections_;  // guarded by mutex_
};

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->port(); }
int HttpServer::num_connections() const { return impl_->num_connections(); }
void HttpServer::Drain() { impl_->Drain(); }
void HttpServer::Close() { impl_->Close(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(asio::io_context& io,
                                                               const Address& address,
                                                               std::shared_ptr<TlsFiles> tls,
                                                               const HttpLimits& limits,
                                                               HttpService* service) {
  if (address.is_unix()) {
    return InvalidArgument("--listen " + address.ToGrpc() + ": want HOST:PORT");
  }
  error_code error;
  const auto found =
      tcp::resolver(io).resolve(address.host(), std::to_string(address.port()),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return InvalidArgument("--listen " + address.ToGrpc() + ": " + error.message());
  }
  try {
    auto impl = std::make_shared<Impl>(io, std::move(tls), limits, service);
    impl->Bind(found.begin()->endpoint());
    impl->Accept();
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const boost::system::system_error& failure) {
    return Unavailable("cannot listen on " + address.ToGrpc() + ": " + failure.code().message());
  }
}

}  // namespace tandem::gateway
