#include "services/gateway/server/gateway_server.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/admin/admin_server.h"
#include "common/rpc/address.h"
#include "common/security/channel_credentials.h"
#include "common/security/token_file.h"
#include "common/status.h"
#include "services/gateway/calls/router_client.h"
#include "services/gateway/calls/routes.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/server/access_log.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;

// One thread parses a large body while the other one serves the streams.
constexpr int kThreads = 2;

constexpr TlsFlags kRouterTlsFlags = {
    .certificate = "--router-certificate", .key = "--router-key", .authorities = "--router-ca"};

// The addresses of the flags, checked.
struct Places {
  Address clients;
  Address router;
  std::optional<Address> admin;  // none: there is no admin server
};

absl::StatusOr<Places> PlacesOf(const GatewayOptions& options, const ServerSecurity& security) {
  Places places;
  TANDEM_ASSIGN_OR_RETURN(places.clients, Address::Parse(options.listen));
  TANDEM_ASSIGN_OR_RETURN(places.router, Address::Parse(options.connect));
  const bool is_guarded = security.tls != nullptr || security.tokens != nullptr;
  TANDEM_RETURN_IF_ERROR(CheckBindIsLocal(places.clients, options.insecure || is_guarded));
  if (options.admin == "none") return places;
  TANDEM_ASSIGN_OR_RETURN(places.admin, Address::Parse(options.admin));
  TANDEM_RETURN_IF_ERROR(CheckBindIsLocal(
      *places.admin, options.insecure || security.tokens != nullptr, "--admin", "--token-file"));
  return places;
}

// How the gateway reaches the router, and whether tokens may go there.
struct RouterLink {
  RouterAddress router;
  bool is_private = false;  // TLS, or an address of this machine
};

absl::StatusOr<RouterLink> LinkOf(const GatewayOptions& options, const Address& router) {
  RouterLink link;
  link.router.address = router.ToGrpc();
  std::shared_ptr<TlsFiles> tls;
  if (!options.router_tls.authorities.empty() && !router.is_unix()) {
    TANDEM_ASSIGN_OR_RETURN(tls, TlsFiles::Open(options.router_tls, kRouterTlsFlags));
  } else if (options.router_tls.authorities.empty() &&
             !(options.router_tls.certificate.empty() && options.router_tls.key.empty())) {
    return InvalidArgument(
        "--router-certificate and --router-key are for TLS, which needs --router-ca: the authority "
        "of the router's certificate");
  }
  link.router.credentials = MakeChannelCredentials(tls.get());
  link.is_private = tls != nullptr || router.is_loopback();
  if (options.router_token_file.empty()) return link;
  TANDEM_ASSIGN_OR_RETURN(link.router.token,
                          FirstTokenOf("--router-token-file", options.router_token_file));
  if (!link.is_private && !options.insecure) {
    return InvalidArgument("--router-token-file: the token would go to " + router.ToGrpc() +
                           " in plaintext, and others could read it: use TLS (--router-ca), or "
                           "allow it (--insecure)");
  }
  return link;
}

// Ends the server in order when signals come.
class Drain {
 public:
  Drain(asio::io_context& io, double seconds, Routes* routes, RouterClient* router,
        HttpServer* server)
      : strand_(asio::make_strand(io)),
        signals_(strand_, SIGTERM, SIGINT),
        timer_(strand_),
        seconds_(seconds),
        routes_(routes),
        router_(router),
        server_(server) {
    signals_.async_wait([this](const auto& error, int) {
      if (!error) Begin();
    });
  }

 private:
  void Begin() {
    spdlog::info("told to stop: draining for at most {} s", seconds_);
    routes_->Drain();
    server_->Drain();
    // The timer and the signals must not keep the process alive when the last connection ends.
    signals_.async_wait([this](const auto& error, int) {
      if (!error) End();
    });
    timer_.expires_after(std::chrono::nanoseconds(static_cast<int64_t>(seconds_ * 1e9)));
    timer_.async_wait([this](const auto& error) {
      if (!error) End();
      boost::system::error_code ignored;
      signals_.cancel(ignored);
    });
    Watch();
  }

  // Does not wait any longer.
  void End() {
    server_->Close();
    router_->CancelUnaryCalls();
  }

  // Looks whether connections are left.
  void Watch() {
    if (server_->num_connections() == 0) {
      timer_.cancel();
      router_->Close();  // only connections begin calls
      return;
    }
    watch_.emplace(strand_, std::chrono::milliseconds(5));
    watch_->async_wait([this](const auto&) { Watch(); });
  }

  asio::any_io_executor strand_;
  asio::signal_set signals_;
  asio::steady_timer timer_;
  std::optional<asio::steady_timer> watch_;
  const double seconds_;
  Routes* const routes_;
  RouterClient* const router_;
  HttpServer* const server_;
};

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::Status RunGateway(const GatewayOptions& options,
                        const std::function<void(const std::string& address)>& on_listening) {
  TANDEM_ASSIGN_OR_RETURN(const ServerSecurity security, ServerSecurity::Open(options.security));
  TANDEM_ASSIGN_OR_RETURN(const Places places, PlacesOf(options, security));
  TANDEM_ASSIGN_OR_RETURN(RouterLink link, LinkOf(options, places.router));
  RoutesOptions of_routes;
  of_routes.version = TANDEM_VERSION;
  of_routes.security = security;
  of_routes.is_loopback = places.clients.is_loopback();
  of_routes.passes_tokens_on =
      security.tokens == nullptr && link.router.token.empty() && link.is_private;
  of_routes.created = SecondsSince1970();

  AccessLog access_log(TANDEM_VERSION);
  asio::io_context io(kThreads + 1);  // and the one that waits for the router
  RouterClient router(std::move(link.router), io);
  Routes routes(std::move(of_routes), &router,
                [&access_log](const AccessRecord& record) { access_log.Write(record); });
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<HttpServer> server,
      HttpServer::Listen(io, places.clients, security.tls, options.limits, &routes));
  const std::string address = places.clients.ToString(server->port());
  std::unique_ptr<AdminServer> admin;
  if (places.admin.has_value()) {
    AdminRoutes pages = access_log.Pages([&server] { return server->num_connections(); });
    TANDEM_ASSIGN_OR_RETURN(
        admin, AdminServer::Start(*places.admin, std::move(pages), AdminLimits(), security));
    spdlog::info("metrics: {}/metrics", admin->url());
  }
  Drain drain(io, options.drain_seconds, &routes, &router, server.get());
  on_listening(address);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&io] { io.run(); });
  io.run();
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

}  // namespace tandem::gateway
