#include "common/rpc/address.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

#include "common/status.h"

namespace tandem {
namespace {

constexpr char kUnixPrefix[] = "unix:";
constexpr size_t kUnixPrefixLength = sizeof(kUnixPrefix) - 1;

sockaddr_un FileAddress(const std::filesystem::path& path) {
  sockaddr_un result{};
  result.sun_family = AF_UNIX;
  std::memcpy(result.sun_path, path.c_str(), path.native().size() + 1);
  return result;
}

// Returns true if a connection to the socket file succeeds, or fails in a way that shows a listener
// (a full backlog).
bool SomebodyListens(const std::filesystem::path& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;  // unknown: leave the file alone
  const sockaddr_un address = FileAddress(path);
  const int rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const bool refused = rc != 0 && errno == ECONNREFUSED;
  close(fd);
  return !refused;
}

}  // namespace

absl::StatusOr<Address> Address::Parse(const std::string& text) {
  Address address;
  if (text.starts_with(kUnixPrefix)) {
    std::string path = text.substr(kUnixPrefixLength);
    if (path.starts_with("//")) path = path.substr(2);  // unix:///absolute
    if (path.empty()) return InvalidArgument("address '" + text + "': the path is empty");
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return InvalidArgument("address '" + text + "': the path has " + std::to_string(path.size()) +
                             " bytes, a Unix socket's at most " +
                             std::to_string(sizeof(sockaddr_un::sun_path) - 1));
    }
    if (path.find('\0') != std::string::npos) {
      return InvalidArgument("address: the path has a NUL byte");
    }
    address.path_ = path;
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return InvalidArgument("address '" + text + "': want HOST:PORT or unix:PATH");
  }
  address.host_ = text.substr(0, colon);
  if (address.host_.starts_with('[') && address.host_.ends_with(']')) {
    address.host_ = address.host_.substr(1, address.host_.size() - 2);
  } else if (address.host_.find(':') != std::string::npos) {
    return InvalidArgument("address '" + text + "': write an IPv6 address as [ADDRESS]:PORT");
  }
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, address.port_);
  if (error != std::errc() || rest != end) {
    return InvalidArgument("address '" + text + "': the port is '" + std::string(begin, end) +
                           "', want 0 … 65535");
  }
  return address;
}

bool Address::is_loopback() const {
  if (is_unix() || host_ == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host_.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host_.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address::ToGrpc() const { return ToString(port_); }

std::string Address::ToString(int port) const {
  if (is_unix()) return kUnixPrefix + path_.string();
  const bool is_v6 = host_.find(':') != std::string::npos;
  return (is_v6 ? "[" + host_ + "]" : host_) + ":" + std::to_string(port);
}

absl::Status PrepareSocketPath(const Address& address) {
  if (!address.is_unix()) return absl::OkStatus();
  const std::filesystem::path& path = address.path();
  std::error_code error;
  if (const auto folder = path.parent_path();
      !folder.empty() && std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return InvalidArgument("cannot create " + path.parent_path().string() + ": " + error.message());
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return FailedPrecondition(path.string() + " exists and is no socket; name another path");
  }
  if (SomebodyListens(path)) {
    return absl::AlreadyExistsError(path.string() + ": another process listens there");
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

void RemoveSocket(const Address& address) {
  if (address.is_unix()) unlink(address.path().c_str());
}

absl::Status CheckBindIsLocal(const Address& address, bool allowed, const char* option,
                              const char* ways) {
  if (allowed || address.is_loopback()) return absl::OkStatus();
  return InvalidArgument(std::string(option) + " " + address.ToGrpc() +
                         " can be reached from other machines: that needs " + ways +
                         ", or --insecure; else use a loopback address");
}

}  // namespace tandem
