#include "common/admin/admin_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "common/admin/connection_places.h"
#include "common/security/authorization.h"
#include "common/status.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;

using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

std::chrono::nanoseconds Duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

AdminResponse Plain(http::status status, const std::string& text) {
  return {.body = text + "\n", .status = static_cast<int>(status)};
}

using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// Makes the TLS context for new connections. OpenSSL counts its references.
std::unique_ptr<ssl::context> MakeTlsContext(const TlsPem& pem) {
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                       ssl::context::no_tlsv1_1);
  context->use_certificate_chain(asio::buffer(pem.certificate));
  context->use_private_key(asio::buffer(pem.key), ssl::context::pem);
  return context;
}

// Returns the token in an Authorization header.
std::string TokenIn(std::string_view authorization) {
  std::string token = BearerToken(authorization);
  return token.empty() ? BasicPassword(authorization) : token;
}

// Returns the name under which a peer's connections are counted. Empty for this machine, where a
// caller could do greater harm in other ways.
std::string PeerName(asio::ip::address address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return address.is_loopback() ? "" : address.to_string();
}

}  // namespace

class AdminServer::Impl {
 public:
  Impl(const tcp::endpoint& endpoint, AdminRoutes routes, const AdminLimits& limits,
       ServerSecurity security)
      : places_(limits.connections, limits.connections_of_peer),
        acceptor_(context_, endpoint),
        is_loopback_(endpoint.address().is_loopback()),
        routes_(std::move(routes)),
        limits_(limits),
        security_(std::move(security)) {}

  ~Impl() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  int port() const { return acceptor_.local_endpoint().port(); }

  void Run() {
    Accept();
    thread_ = std::thread([this] { context_.run(); });
  }

  bool encrypted() const { return security_.tls != nullptr; }

  std::string address;

 private:
  // A connection over TCP or TLS. It keeps itself alive until it waits for nothing more.
  template <typename Stream>
  class Connection : public std::enable_shared_from_this<Connection<Stream>> {
   public:
    // `arguments` go to the constructor of the stream.
    template <typename... Arguments>
    Connection(Impl* server, const std::string& peer, Arguments&&... arguments)
        : server_(server),
          stream_(std::forward<Arguments>(arguments)...),
          buffer_(static_cast<size_t>(server->limits_.header_bytes)),
          place_(server->places_.Take(peer)) {
      // Everything that the connection waits for then ends with an error, and so does the
      // connection.
      server_->closers_[place_] = [this] { socket().close(); };
    }
    ~Connection() {
      server_->places_.Leave(place_);
      server_->closers_.erase(place_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void Begin() {
      if constexpr (kEncrypted) {
        socket().expires_after(Duration(server_->limits_.request_seconds));
        stream_.async_handshake(ssl::stream_base::server,
                                [self = this->shared_from_this()](const error_code& error) {
                                  if (!error) self->Read(self->server_->limits_.request_seconds);
                                });
      } else {
        Read(server_->limits_.request_seconds);
      }
    }

   private:
    static constexpr bool kEncrypted = std::is_same_v<Stream, TlsStream>;

    beast::tcp_stream& socket() { return beast::get_lowest_layer(stream_); }

    // A peer that is too slow, or does not speak HTTP, gets no answer.
    void Read(double patience) {
      parser_.emplace();
      parser_->header_limit(static_cast<uint32_t>(server_->limits_.header_bytes));
      socket().expires_after(Duration(patience));
      http::async_read_header(stream_, buffer_, *parser_,
                              [self = this->shared_from_this()](const error_code& error, size_t) {
                                if (!error) self->Write();
                              });
    }

    void Write() {
      server_->places_.IsAnswered(place_);
      const Request request = parser_->release();
      response_ = server_->Answer(request);
      // If a header announces a body, the body cannot be told apart from the next request.
      goes_on_ = request.keep_alive() && !request.has_content_length() && !request.chunked();
      response_.keep_alive(goes_on_);
      serializer_.emplace(response_);
      socket().expires_after(Duration(server_->limits_.request_seconds));
      const auto written = [self = this->shared_from_this()](const error_code& error, size_t) {
        self->OnWritten(error);
      };
      if (request.method() == http::verb::head) {
        http::async_write_header(stream_, *serializer_, written);
      } else {
        http::async_write(stream_, *serializer_, written);
      }
    }

    void OnWritten(const error_code& error) {
      server_->places_.Waits(place_);
      if (!error && goes_on_) return Read(server_->limits_.idle_seconds);
      if constexpr (kEncrypted) {
        if (error) return;
        socket().expires_after(Duration(server_->limits_.request_seconds));
        stream_.async_shutdown([self = this->shared_from_this()](const error_code&) {});
      } else {
        error_code ignored;
        stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      }
    }

    Impl* server_;
    Stream stream_;
    beast::flat_buffer buffer_;
    const ConnectionPlaces::Place place_;
    std::optional<http::request_parser<http::empty_body>> parser_;
    Response response_;
    std::optional<http::response_serializer<http::string_body>> serializer_;
    bool goes_on_ = true;
  };

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return AcceptLater();
      MakeRoom(std::move(socket));
      Accept();
    });
  }

  // Gives the new connection a free place, or the place of the connection that gives way. Closes
  // the new connection if there is no such place.
  void MakeRoom(tcp::socket socket) {
    error_code error;
    const tcp::endpoint endpoint = socket.remote_endpoint(error);
    if (error) return;  // the peer has gone already
    const std::string peer = PeerName(endpoint.address());
    const ConnectionPlaces::Room room = places_.RoomFor(peer);
    if (!room.is_there) return;
    if (room.gives_way.has_value()) {
      const auto closer = closers_.extract(*room.gives_way);
      places_.Leave(*room.gives_way);
      closer.mapped()();
    }
    Begin(std::move(socket), peer);
  }

  void Begin(tcp::socket socket, const std::string& peer) {
    if (!encrypted()) {
      return std::make_shared<Connection<beast::tcp_stream>>(this, peer, std::move(socket))
          ->Begin();
    }
    RenewTlsContext();
    if (tls_context_ == nullptr) return;
    std::make_shared<Connection<TlsStream>>(this, peer, std::move(socket), *tls_context_)->Begin();
  }

  void RenewTlsContext() {
    std::shared_ptr<const TlsPem> pem = security_.tls->Current();
    if (pem == tls_pem_) return;
    tls_pem_ = std::move(pem);
    try {
      tls_context_ = MakeTlsContext(*tls_pem_);
      // The earlier context, if any, stays in use.
    } catch (const boost::system::system_error& error) {
      spdlog::error("--admin: OpenSSL refuses the certificate: {}", error.what());
    }
  }

  // Usually no descriptors are left, so another connection must end first.
  void AcceptLater() {
    pause_.expires_after(std::chrono::milliseconds(100));
    pause_.async_wait([this](const error_code& error) {
      if (!error) Accept();
    });
  }

  // Returns true if the header Host names a host that this server serves.
  bool ServesHost(const Request& request) const {
    const auto header = request.find(http::field::host);
    if (!is_loopback_ || header == request.end()) return true;
    std::string host(header->value().data(), header->value().size());
    if (const size_t colon = host.rfind(':');
        colon != std::string::npos && host.find(']', colon) == std::string::npos) {
      host.resize(colon);
    }
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    error_code error;
    asio::ip::make_address(host, error);
    return !error || beast::iequals(host, "localhost");
  }

  // Returns the answer that denies the request for `path`. Nullopt: the request is allowed.
  std::optional<AdminResponse> Denial(const Request& request, const std::string& path) const {
    const bool is_probe = Reads(request) && (path == "/healthz" || path == "/readyz");
    if (security_.tokens == nullptr || is_probe) return std::nullopt;
    std::string token;
    if (const auto header = request.find(http::field::authorization); header != request.end()) {
      token = TokenIn({header->value().data(), header->value().size()});
    }
    switch (token.empty() ? Role::kNone : security_.tokens->RoleOf(token)) {
      case Role::kAdmin:
        return std::nullopt;
      case Role::kClient:
        return Plain(http::status::forbidden,
                     "this is a client's token, and the page needs an admin's");
      case Role::kNone:
        break;
    }
    return Plain(http::status::unauthorized,
                 "an admin's token is needed: Authorization: Bearer TOKEN, or Basic with the token "
                 "as password");
  }

  static bool Reads(const Request& request) {
    return request.method() == http::verb::get || request.method() == http::verb::head;
  }

  Response Answer(const Request& request) const {
    const std::string target(request.target().data(), request.target().size());
    const size_t path_size = std::min(target.find('?'), target.size());
    const std::string query = path_size < target.size() ? target.substr(path_size + 1) : "";
    const std::string path = target.substr(0, path_size);
    const auto route = routes_.find(path);
    AdminResponse answer;
    if (!ServesHost(request)) {
      answer = Plain(http::status::misdirected_request, "ask for localhost, or an IP address");
    } else if (auto denial = Denial(request, path)) {
      answer = *std::move(denial);
    } else if (route == routes_.end()) {
      answer = Plain(http::status::not_found, "no such page; there are: " + Pages());
    } else if (!Reads(request)) {
      answer = Plain(http::status::method_not_allowed, "only GET and HEAD");
    } else {
      try {
        answer = route->second(query);
      } catch (const std::exception& error) {
        spdlog::error("admin: {}: {}", route->first, error.what());
        answer = Plain(http::status::internal_server_error, "failed; the log says why");
      }
    }
    Response response(static_cast<http::status>(answer.status), request.version());
    response.set(http::field::content_type, answer.content_type);
    response.set(http::field::cache_control, "no-store");
    response.set("X-Content-Type-Options", "nosniff");
    // Pages contain only what this server sends, and no other site can show them in a frame.
    response.set("Content-Security-Policy",
                 "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                 "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    response.set("Referrer-Policy", "no-referrer");
    if (response.result() == http::status::method_not_allowed) {
      response.set(http::field::allow, "GET, HEAD");
    }
    if (response.result() == http::status::unauthorized) {
      response.set(http::field::www_authenticate, "Basic realm=\"tandem\", charset=\"UTF-8\"");
      response.insert(http::field::www_authenticate, "Bearer realm=\"tandem\"");
    }
    response.body() = std::move(answer.body);
    response.prepare_payload();
    return response;
  }

  std::string Pages() const {
    std::string pages;
    for (const auto& [path, handler] : routes_) pages += (pages.empty() ? "" : ", ") + path;
    return pages;
  }

  // These members outlive the context, whose last connections use them.
  ConnectionPlaces places_;
  std::map<ConnectionPlaces::Place, std::function<void()>>
      closers_;  // closers of these connections
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_{context_};
  const bool is_loopback_;
  const AdminRoutes routes_;
  const AdminLimits limits_;
  const ServerSecurity security_;
  std::shared_ptr<const TlsPem> tls_pem_;  // contents that the context was made from
  std::unique_ptr<ssl::context> tls_context_;
  std::thread thread_;
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->address; }

std::string AdminServer::url() const {
  return (impl_->encrypted() ? "https://" : "http://") + impl_->address;
}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const Address& address,
                                                                AdminRoutes routes,
                                                                const AdminLimits& limits,
                                                                ServerSecurity security) {
  if (address.is_unix()) {
    return InvalidArgument("--admin " + address.ToGrpc() + ": want HOST:PORT, or none");
  }
  error_code error;
  asio::io_context context;
  const auto found = tcp::resolver(context).resolve(
      address.host(), std::to_string(address.port()),
      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return InvalidArgument("--admin " + address.ToGrpc() + ": " + error.message());
  }
  try {
    auto impl = std::make_unique<Impl>(found.begin()->endpoint(), std::move(routes), limits,
                                       std::move(security));
    impl->address = address.ToString(impl->port());
    impl->Run();
    return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
  } catch (const boost::system::system_error& failure) {
    return Unavailable("--admin: cannot listen on " + address.ToGrpc() + ": " +
                       failure.code().message());
  }
}

}  // namespace tandem
