#include "common/rpc/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/monotonic_seconds.h"
#include "common/status.h"
#include "common/unix_peer.h"

namespace tandem {
namespace {

constexpr int kPauseMilliseconds = 100;  // pause before descriptors are requested again
constexpr double kLogPauseSeconds = 1;   // pause between two log lines about connections

uint64_t MostDescriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

absl::Status CannotListen(const Address& address, const char* why) {
  return Unavailable("cannot listen on " + address.ToString(address.port()) + ": " + why);
}

bool SetOption(int socket, int level, int option) {
  const int on = 1;
  return setsockopt(socket, level, option, &on, sizeof(on)) == 0;
}

// Returns a listening socket, or -1 with errno.
int Listen(const sockaddr* address, socklen_t size) {
  const int made = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -1;
  const bool is_unix = address->sa_family == AF_UNIX;
  // A connection in TIME_WAIT of an earlier process must not cause a failure. Accepted connections
  // inherit TCP_NODELAY.
  const bool is_set = is_unix || (SetOption(made, SOL_SOCKET, SO_REUSEADDR) &&
                                  SetOption(made, IPPROTO_TCP, TCP_NODELAY));
  if (is_set && bind(made, address, size) == 0 && listen(made, SOMAXCONN) == 0) return made;
  const int error = errno;
  close(made);
  errno = error;
  return -1;
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

}  // namespace

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return MostDescriptors();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const Address& address,
                                                         UnixPeers unix_peers) {
  std::unique_ptr<Listener> listener(new Listener(address, unix_peers));
  listener->stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->stop_ < 0) return CannotListen(address, std::strerror(errno));
  const uint64_t limit = MostDescriptors();
  listener->most_descriptors_ = limit - std::min(kReservedDescriptors, limit / 4);
  TANDEM_RETURN_IF_ERROR(address.is_unix() ? listener->BindUnix() : listener->BindTcp());
  return listener;
}

absl::Status Listener::BindUnix() {
  TANDEM_RETURN_IF_ERROR(PrepareSocketPath(address_));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, address_.path().c_str(), address_.path().native().size() + 1);
  const mode_t before = umask(0177);
  const int socket = Listen(reinterpret_cast<const sockaddr*>(&at), sizeof(at));
  const int error = errno;
  umask(before);
  if (socket < 0) return CannotListen(address_, std::strerror(error));
  sockets_.push_back(socket);
  return absl::OkStatus();
}

absl::Status Listener::BindTcp() {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(address_.host().c_str(), std::to_string(address_.port()).c_str(), &hints, &found);
  if (failed != 0) return CannotListen(address_, gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  uint16_t port = address_.port();
  int error = EADDRNOTAVAIL;
  for (addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SetPort(at->ai_addr, port);
    const int socket = Listen(at->ai_addr, at->ai_addrlen);
    if (socket < 0) {
      error = errno;
      // A host name may have addresses that this machine lacks. A port that is in use, however, is
      // an error.
      if (error == EADDRINUSE && address_.port() != 0) break;
      continue;
    }
    sockets_.push_back(socket);
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) == 0) port = PortOf(bound);
    error = 0;
  }
  if (sockets_.empty() || (error == EADDRINUSE && address_.port() != 0))
    return CannotListen(address_, std::strerror(error));
  port_ = port;
  return absl::OkStatus();
}

void Listener::AddTo(grpc::ServerBuilder& builder,
                     std::shared_ptr<grpc::ServerCredentials> credentials) {
  using Builder = grpc::ServerBuilder::experimental_type;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, std::move(credentials));
}

void Listener::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_, 1);
  thread_.join();
}

Listener::~Listener() {
  Stop();
  for (const int socket : sockets_) close(socket);
  if (stop_ >= 0) close(stop_);
  if (!sockets_.empty()) RemoveSocket(address_);
}

void Listener::Run() {
  std::vector<pollfd> watched = {{stop_, POLLIN, 0}};
  for (const int socket : sockets_) watched.push_back({socket, POLLIN, 0});
  bool is_paused = false;
  while (true) {
    const nfds_t count = is_paused ? 1 : watched.size();
    const int ready = poll(watched.data(), count, is_paused ? kPauseMilliseconds : -1);
    if (ready < 0 && errno != EINTR) return spdlog::error("listener: {}", std::strerror(errno));
    if (watched[0].revents != 0) return;
    is_paused = false;
    for (nfds_t i = 1; ready > 0 && i < count; ++i) {
      if (watched[i].revents != 0 && !Accept(watched[i].fd)) is_paused = true;
    }
  }
}

bool Listener::Accept(int socket) {
  const int connection = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0) {
    const bool is_scarce =
        errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (is_scarce) TurnAway(std::strerror(errno));
    return !is_scarce;  // otherwise the peer went away before it was accepted
  }
  if (unix_peers_ == UnixPeers::kOwnUser && address_.is_unix()) {
    const std::optional<ucred> peer = UnixPeerOf(connection);
    if (!peer.has_value() || (peer->uid != geteuid() && peer->uid != 0)) {
      close(connection);
      TurnAway(peer.has_value()
                   ? absl::StrCat("user ", peer->uid, " is not the user of this process")
                   : "the kernel does not name their user");
      return true;
    }
  }
  // The kernel gives the lowest free number, so about this many descriptors are in use.
  if (static_cast<uint64_t>(connection) >= most_descriptors_) {
    close(connection);
    TurnAway("too few descriptors are left; ulimit -n sets how many there are");
    return true;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = socket;
  parameters.fd = connection;
  acceptor_->HandleNewConnection(&parameters);
  return true;
}

void Listener::TurnAway(const std::string& why) {
  ++num_turned_away_;
  if (const double now = MonotonicSeconds(); now >= logged_at_ + kLogPauseSeconds) {
    spdlog::warn("connections: {} turned away: {}", num_turned_away_ - num_logged_, why);
    num_logged_ = num_turned_away_;
    logged_at_ = now;
  }
}

}  // namespace tandem
