// The address that the server will listen on.
#ifndef TANDEM_SERVICES_CLI_CLIENT_LISTEN_ADDRESS_H_
#define TANDEM_SERVICES_CLI_CLIENT_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::cli {

inline constexpr char kUnixPrefix[] = "unix:";

// "unix:PATH" or "HOST:PORT"; an IPv6 host is in brackets.
struct ListenAddress {
  std::string unix_path;  // empty: TCP
  std::string host;       // without brackets
  uint16_t port = 0;      // 0: any free port
};

// INVALID_ARGUMENT for any other text, and for a path that is too long for a socket address. Errors
// name `option`, the flag that gave the address.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& address,
                                                 const std::string& option = "--listen");

// Returns true if only this machine can reach the address: a Unix socket, localhost, 127.0.0.0/8 or
// ::1.
bool IsLocal(const ListenAddress& address);

// RESOURCE_EXHAUSTED: another process listens there. Callers check this before they start anything,
// because gRPC alone would share the port or take over the socket's name. INVALID_ARGUMENT: the
// Unix path is something other than a socket.
absl::Status CheckFree(const ListenAddress& address, const std::string& option = "--listen");

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_LISTEN_ADDRESS_H_
