#include "services/cli/client/listen_address.h"

#include <sys/un.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <charconv>
#include <filesystem>

#include "common/status.h"

namespace tandem::cli {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

absl::Status CheckUnixPathFree(const std::string& path, const std::string& option) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, ignored);
  if (!std::filesystem::exists(status)) return absl::OkStatus();
  if (!std::filesystem::is_socket(status)) {
    return InvalidArgument(option + ": " + path + " exists and is not a socket");
  }
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  error_code error;
  socket.connect(asio::local::stream_protocol::endpoint(path), error);
  if (!error) {
    return ResourceExhausted(option + ": unix:" + path + " is taken: a server listens there");
  }
  return absl::OkStatus();  // a server that has ended left the socket behind
}

absl::Status CheckPortFree(const ListenAddress& address, const std::string& option) {
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  error_code error;
  const auto endpoints = resolver.resolve(address.host, std::to_string(address.port), error);
  if (error) {
    return InvalidArgument(option + ": host " + address.host + ": " + error.message());
  }
  for (const auto& entry : endpoints) {
    asio::ip::tcp::acceptor acceptor(io);
    acceptor.open(entry.endpoint().protocol(), error);
    if (error) continue;  // the machine has no IPv6
    acceptor.set_option(asio::ip::tcp::acceptor::reuse_address(true), error);
    acceptor.bind(entry.endpoint(), error);
    if (!error) acceptor.listen(1, error);
    if (error == asio::error::address_in_use) {
      return ResourceExhausted(option + ": port " + std::to_string(address.port) + " of " +
                               address.host +
                               " is taken by another process (choose another port, or 0 for any "
                               "free port)");
    }
    if (error == asio::error::access_denied) {
      return InvalidArgument(option + ": port " + std::to_string(address.port) +
                             " is not permitted for this user (ports under 1024 need root)");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& address,
                                                 const std::string& option) {
  ListenAddress parsed;
  if (address.rfind(kUnixPrefix, 0) == 0) {
    parsed.unix_path = address.substr(sizeof(kUnixPrefix) - 1);
    if (parsed.unix_path.empty()) return InvalidArgument(option + ": unix: lacks a path");
    if (parsed.unix_path.size() >= sizeof(sockaddr_un{}.sun_path)) {
      return InvalidArgument(option + ": the path of a Unix socket has at most " +
                             std::to_string(sizeof(sockaddr_un{}.sun_path) - 1) + " bytes, got " +
                             std::to_string(parsed.unix_path.size()));
    }
    return parsed;
  }
  const std::string wanted =
      option + ": got \"" + address + "\", want HOST:PORT (such as 127.0.0.1:50051) or unix:PATH";
  if (address.find("://") != std::string::npos) {
    return InvalidArgument(wanted + "; Tandem speaks gRPC, and its addresses have no scheme");
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return InvalidArgument(wanted);
  parsed.host = address.substr(0, colon);
  if (parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  } else if (parsed.host.find(':') != std::string::npos) {
    return InvalidArgument(wanted + "; an IPv6 host goes in brackets");
  }
  const char* end = address.data() + address.size();
  const auto [stop, code] = std::from_chars(address.data() + colon + 1, end, parsed.port);
  if (code != std::errc() || stop != end || parsed.host.empty()) return InvalidArgument(wanted);
  return parsed;
}

bool IsLocal(const ListenAddress& address) {
  if (!address.unix_path.empty() || address.host == "localhost") return true;
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);
  return !error && ip.is_loopback();
}

absl::Status CheckFree(const ListenAddress& address, const std::string& option) {
  if (!address.unix_path.empty()) return CheckUnixPathFree(address.unix_path, option);
  return CheckPortFree(address, option);
}

}  // namespace tandem::cli
