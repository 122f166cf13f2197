// Addresses that people write (unix:PATH, HOST:PORT) and the sockets behind them.
#ifndef TANDEM_COMMON_RPC_ADDRESS_H_
#define TANDEM_COMMON_RPC_ADDRESS_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// An address has the form unix:PATH (PATH relative or absolute, at most 107 bytes), HOST:PORT or
// [IPV6]:PORT. Port 0 asks for a free port.
class Address {
 public:
  static absl::StatusOr<Address> Parse(const std::string& text);

  bool is_unix() const { return !path_.empty(); }
  const std::filesystem::path& path() const { return path_; }  // path of a Unix socket
  const std::string& host() const { return host_; }            // without brackets
  uint16_t port() const { return port_; }
  // Returns true for Unix sockets, localhost, 127.0.0.0/8 and ::1, and false for any other host
  // name.
  bool is_loopback() const;

  // For gRPC's ServerBuilder and CreateChannel.
  std::string ToGrpc() const;
  // The form that people see and can give to a client. `port` replaces a port that was given as 0.
  std::string ToString(int port) const;

 private:
  std::filesystem::path path_;
  std::string host_;
  uint16_t port_ = 0;
};

// Called before binding. Creates a missing folder (0700) and removes a socket file that nobody
// listens on. ALREADY_EXISTS: somebody listens on the socket. FAILED_PRECONDITION: the file is no
// socket. Does nothing for TCP.
absl::Status PrepareSocketPath(const Address& address);

// Removes the socket file if the address is a Unix socket.
void RemoveSocket(const Address& address);

// INVALID_ARGUMENT if other machines can reach the address, unless `allowed`. The message says that
// `ways` or --insecure would allow it, and names the `option` that gave the address.
absl::Status CheckBindIsLocal(const Address& address, bool allowed, const char* option = "--listen",
                              const char* ways = "TLS (--tls-certificate) or --token-file");

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_ADDRESS_H_
