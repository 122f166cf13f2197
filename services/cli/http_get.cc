#include "services/cli/http_get.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>

#include "common/status.h"

namespace tandem::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

namespace {

constexpr uint64_t kMaxBodyBytes = 8 << 20;

// One exchange, step by step; `stream` has the deadline of them all.
class Exchange {
 public:
  Exchange(const std::string& host, int port, const std::string& path, double seconds)
      : stream_(io_), request_(http::verb::get, path, 11) {
    const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
    where_ = name + ":" + std::to_string(port);
    request_.set(http::field::host, where_);
    request_.set(http::field::connection, "close");
    parser_.body_limit(kMaxBodyBytes);
    error_code error;
    const auto endpoints = asio::ip::tcp::resolver(io_).resolve(host, std::to_string(port), error);
    if (error) {
      error_ = error;
      return;
    }
    stream_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
    stream_.async_connect(endpoints, [this](const error_code& failure, const auto&) {
      if (!Failed(failure)) Send();
    });
    io_.run();
  }

  absl::StatusOr<std::string> Result() {
    if (error_ == http::error::body_limit ||
        error_.category() == http::make_error_code(http::error::bad_version).category()) {
      return FailedPrecondition(where_ + ": that is no admin server of Tandem (" +
                                error_.message() + ")");
    }
    if (error_ == beast::error::timeout) return Unavailable(where_ + ": no answer in time");
    if (error_) return Unavailable(where_ + ": " + error_.message());
    if (parser_.get().result() != http::status::ok) {
      return FailedPrecondition(where_ + " answered " + std::to_string(parser_.get().result_int()) +
                                " to " +
                                std::string(request_.target().data(), request_.target().size()));
    }
    return std::move(parser_.get().body());
  }

 private:
  bool Failed(const error_code& error) {
    error_ = error;
    return static_cast<bool>(error);
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
  beast::tcp_stream stream_;
  http::request<http::empty_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  std::string where_;
  error_code error_;
};

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& host, int port, const std::string& path,
                                    double seconds) {
  return Exchange(host, port, path, seconds).Result();
}

}  // namespace tandem::cli
