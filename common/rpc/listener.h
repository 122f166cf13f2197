// Takes connections for a gRPC server. gRPC's own listener ends, for good and without a word, at the
// first connection for which there is no descriptor (gRPC 1.51, tcp_server_posix.cc), and so
// whoever opens enough of them would shut everybody out.
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

// Descriptors that connections leave for everything else: files, rings, workers, the admin port.
inline constexpr uint64_t kReservedDescriptors = 128;

// Who may connect to a Unix socket, beside what its mode and its folder's say.
enum class UnixPeers : uint8_t {
  kAnyone,
  kOwnUser,  // processes of this one's user, and of root: the kernel says whose they are
};

// Lets this process have as many descriptors as it may: the limit that shells set is for programs
// that use select(). Returns that number.
uint64_t RaiseDescriptorLimit();

class Listener {
 public:
  // Binds: HOST is each of its addresses, at one port; a Unix socket has mode 0600 from the start,
  // and its folder is made if it is missing. Connections wait until Start. UNAVAILABLE names the
  // address and why; errors of PrepareSocketPath.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const Address& address,
                                                        UnixPeers unix_peers = UnixPeers::kAnyone);
  // Stops; a Unix socket's file goes.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Connections will be taken for the server that `builder` builds. Before it does.
  void AddTo(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // Takes connections, on a thread of its own, once that server was built. One for which too few
  // descriptors are left (kReservedDescriptors), or of a user who may not, is closed at once, which
  // the log says.
  void Start();
  // Takes no more. Before the server is shut down; those that there are stay. Once or more.
  void Stop();

  // 1 for a Unix socket.
  int port() const { return port_; }
  uint64_t num_turned_away() const { return num_turned_away_; }

 private:
  Listener(Address address, UnixPeers unix_peers)
      : address_(std::move(address)), unix_peers_(unix_peers) {}
  absl::Status BindUnix();
  absl::Status BindTcp();
  void Run();
  // False: there are no descriptors, or no memory, for now.
  bool Accept(int socket);
  void TurnAway(const std::string& why);

  const Address address_;
  const UnixPeers unix_peers_;
  std::vector<int> sockets_;
  int stop_ = -1;  // an eventfd
  int port_ = 1;
  uint64_t most_descriptors_ = 0;
  std::atomic<uint64_t> num_turned_away_ = 0;
  uint64_t num_logged_ = 0;  // of them
  double logged_at_ = 0;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_LISTENER_H_
