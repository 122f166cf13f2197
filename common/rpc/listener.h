// Accepts connections for a gRPC server. gRPC's own listener ends silently and forever at the first
// connection for which there is no descriptor (gRPC 1.51, tcp_server_posix.cc). A client that opens
// enough connections would lock out everybody.
#ifndef TANDEM_COMMON_RPC_LISTENER_H_
#define TANDEM_COMMON_RPC_LISTENER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/address.h"

namespace tandem {

// Number of descriptors that connections leave for everything else: files, rings, workers, the
// admin port.
inline constexpr uint64_t kReservedDescriptors = 128;

// Who may connect to a Unix socket, in addition to the mode of the socket and of its folder.
enum class UnixPeers : uint8_t {
  kAnyone,
  kOwnUser,  // processes of this process's user and of root; the kernel names the user
};

// Raises the limit of descriptors to the largest allowed number, and returns it. The lower limit
// that shells set is for programs that use select().
uint64_t RaiseDescriptorLimit();

class Listener {
 public:
  // Binds every address of HOST at one port, or a Unix socket. The socket has mode 0600 from the
  // start, and its folder is made if it is missing. Connections wait until Start. UNAVAILABLE: the
  // message names the address and the reason. Also returns the errors of PrepareSocketPath.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const Address& address,
                                                        UnixPeers unix_peers = UnixPeers::kAnyone);
  // Stops, and removes the file of a Unix socket.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Connections will be accepted for the server that `builder` builds. Called before it builds.
  void AddTo(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // Called after the server was built. Accepts connections on a thread of its own. A connection is
  // closed at once, with a log line, if too few descriptors are left (kReservedDescriptors) or if
  // its user may not connect.
  void Start();
  // Accepts no more connections. Called before the server is shut down, once or more. Open
  // connections stay.
  void Stop();

  // The bound port. 1 for a Unix socket.
  int port() const { return port_; }
  uint64_t num_turned_away() const { return num_turned_away_; }

 private:
  Listener(Address address, UnixPeers unix_peers)
      : address_(std::move(address)), unix_peers_(unix_peers) {}
  absl::Status BindUnix();
  absl::Status BindTcp();
  void Run();
  // Returns false if there are no descriptors or no memory at present.
  bool Accept(int socket);
  void TurnAway(const std::string& why);

  const Address address_;
  const UnixPeers unix_peers_;
  std::vector<int> sockets_;
  int stop_ = -1;  // an eventfd
  int port_ = 1;
  uint64_t most_descriptors_ = 0;
  std::atomic<uint64_t> num_turned_away_ = 0;
  uint64_t num_logged_ = 0;  // number of turned away connections that the log has
  double logged_at_ = 0;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_LISTENER_H_
