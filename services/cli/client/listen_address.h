// The address that the server is to listen on.
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
  uint16_t port = 0;      // 0: a free one
};

// INVALID_ARGUMENT for anything else, and for a path that does not fit a socket address. Errors name
// `option`, which the address was given with.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& address,
                                                 const std::string& option = "--listen");

// Whether only this machine can reach it: a Unix socket, localhost, 127.0.0.0/8 or ::1.
bool IsLocal(const ListenAddress& address);

// RESOURCE_EXHAUSTED when another process listens there. Asked before anything is started, because
// gRPC by itself would share the port or take the socket's name away. A Unix path that is something
// other than a socket is INVALID_ARGUMENT.
absl::Status CheckFree(const ListenAddress& address, const std::string& option = "--listen");

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_LISTEN_ADDRESS_H_
