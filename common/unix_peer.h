// The process at the other end of a Unix socket (unix(7), SO_PEERCRED).
#ifndef TANDEM_COMMON_UNIX_PEER_H_
#define TANDEM_COMMON_UNIX_PEER_H_

#include <sys/socket.h>

#include <optional>

namespace tandem {

// Process, user and group at the time of the connection. Nullopt if the kernel does not tell them.
inline std::optional<ucred> UnixPeerOf(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

}  // namespace tandem

#endif  // TANDEM_COMMON_UNIX_PEER_H_
