#include "services/cli/client/http_get.h"

#include <openssl/ssl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <type_traits>
#include <utility>

#include "common/status.h"

namespace tandem::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using boost::system::error_code;

namespace {

constexpr uint64_t kMaxBodyBytes = 8 << 20;

using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// One exchange over TCP or TLS, step by step. One deadline covers all steps.
template <typename Stream>
class Exchange {
 public:
  // `arguments` follow the io_context in the constructor call of the stream.
  template <typename... Arguments>
  Exchange(const std::string& host, int port, const std::string& path, double seconds,
           const ClientSecurity& security, Arguments&... arguments)
      : stream_(io_, arguments...), request_(http::verb::get, path, 11) {
    const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
    where_ = name + ":" + std::to_string(port);
    request_.set(http::field::host, where_);
    request_.set(http::field::connection, "close");
    if (const std::string authorization = security.Authorization(); !authorization.empty()) {
      request_.set(http::field::authorization, authorization);
    }
    parser_.body_limit(kMaxBodyBytes);
    if constexpr (kEncrypted) {
      stream_.set_verify_callback(ssl::host_name_verification(host));
      SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());
    }
    error_code error;
    const auto endpoints = asio::ip::tcp::resolver(io_).resolve(host, std::to_string(port), error);
    if (error) {
      error_ = error;
      return;
    }
    beast::get_lowest_layer(stream_).expires_after(
        std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
    beast::get_lowest_layer(stream_).async_connect(endpoints,
                                                   [this](const error_code& failure, const auto&) {
                                                     if (!Failed(failure)) Greet();
                                                   });
    io_.run();
  }

  absl::StatusOr<std::string> Result() {
    if (error_ == http::error::body_limit ||
        error_.category() == http::make_error_code(http::error::bad_version).category()) {
      return FailedPrecondition(where_ + ": this is not an admin server of Tandem (" +
                                error_.message() + (kEncrypted ? ")" : "), or it speaks TLS"));
    }
    if (error_ == beast::error::timeout) return Unavailable(where_ + ": no answer in time");
    if (error_) return Unavailable(where_ + ": " + error_.message());
    if (parser_.get().result() != http::status::ok) {
      const bool wants_token = parser_.get().result() == http::status::unauthorized ||
                               parser_.get().result() == http::status::forbidden;
      return FailedPrecondition(where_ + " answered " + std::to_string(parser_.get().result_int()) +
                                " to " +
                                std::string(request_.target().data(), request_.target().size()) +
                                (wants_token ? ": it wants an admin's token" : ""));
    }
    return std::move(parser_.get().body());
  }

 private:
  static constexpr bool kEncrypted = std::is_same_v<Stream, TlsStream>;

  bool Failed(const error_code& error) {
    error_ = error;
    return static_cast<bool>(error);
  }
  void Greet() {
    if constexpr (kEncrypted) {
      stream_.async_handshake(ssl::stream_base::client, [this](const error_code& failure) {
        if (!Failed(failure)) Send();
      });
    } else {
      Send();
    }
  }
  void Send() {
    http::async_write(stream_, request_, [this](const error_code& failure, size_t) {
      if (!Failed(failure)) Receive();
    });
  }
  void Receive() {
    http::async_read(stream_, buffer_, parser_,
                     [this](const error_code& failure, size_t) { Failed(failure); });
  }

  asio::io_context io_;
  Stream stream_;
  http::request<http::empty_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  std::string where_;
  error_code error_;
};

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& host, int port, const std::string& path,
                                    double seconds, const ClientSecurity& security) {
  if (security.tls == nullptr) {
    return Exchange<beast::tcp_stream>(host, port, path, seconds, security).Result();
  }
  const auto pem = security.tls->Current();
  try {
    ssl::context context(ssl::context::tls_client);
    context.set_verify_mode(ssl::verify_peer);
    context.add_certificate_authority(asio::buffer(pem->authorities));
    if (!pem->certificate.empty()) {
      context.use_certificate_chain(asio::buffer(pem->certificate));
      context.use_private_key(asio::buffer(pem->key), ssl::context::pem);
    }
    return Exchange<TlsStream>(host, port, path, seconds, security, context).Result();
  } catch (const boost::system::system_error& error) {
    return Unavailable(std::string("TLS: ") + error.what());
  }
}

absl::StatusOr<std::string> HttpsGetFromAnyone(const std::string& host, int port,
                                               const std::string& path, double seconds) {
  try {
    ssl::context context(ssl::context::tls_client);
    context.set_verify_mode(ssl::verify_none);
    return Exchange<TlsStream>(host, port, path, seconds, ClientSecurity(), context).Result();
  } catch (const boost::system::system_error& error) {
    return Unavailable(std::string("TLS: ") + error.what());
  }
}

}  // namespace tandem::cli
