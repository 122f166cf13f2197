// Tests common/rpc/listener: connections of a gRPC server, and too many of them.
#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/ring/unique_fd.h"
#include "tandem/v1/generate.grpc.pb.h"
#include "tests/support/raw_call.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// The outcome for a process of another user that connects to a Unix socket.
enum AsNobody : int { kServed, kTurnedAway, kNotReached };

int ConnectAsNobody(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (setresuid(kNobody, kNobody, kNobody) != 0 ||
        connect(peer, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      _exit(kNotReached);
    }
    char frame[9];
    _exit(read(peer, frame, sizeof(frame)) > 0 ? kServed : kTurnedAway);
  }
  int status = 0;
  const bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
  return ended ? WEXITSTATUS(status) : kNotReached;
}

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() { getrlimit(RLIMIT_NOFILE, &limit_); }
  ~ListenerTest() override {
    setrlimit(RLIMIT_NOFILE, &limit_);
    if (listener_ != nullptr) listener_->Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  void LimitDescriptors(rlim_t count) {
    const rlimit limit = {count, limit_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

  // Starts a server. Tests only ask for gRPC's health service.
  void Serve(const std::string& address, UnixPeers unix_peers = UnixPeers::kAnyone) {
    auto listener = Listener::Bind(*Address::Parse(address), unix_peers);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);  // gRPC polls for these services
    listener_->AddTo(builder, grpc::InsecureServerCredentials());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    listener_->Start();
  }

  static grpc::Status Ask(const std::string& target) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto channel =
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return testing::CallRaw(channel, "/grpc.health.v1.Health/Check", &context);
  }
  std::string Target() const { return "127.0.0.1:" + std::to_string(listener_->port()); }

  void Connect(const UniqueFd& client) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(listener_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  static UniqueFd NewSocket() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

  // Returns true if the server's first frame arrives. A connection that was turned away sees its
  // end instead.
  static bool IsServed(const UniqueFd& client, int milliseconds) {
    pollfd watched = {client.get(), POLLIN, 0};
    char frame[9];
    return poll(&watched, 1, milliseconds) == 1 && read(client.get(), frame, sizeof(frame)) > 0;
  }

  rlimit limit_{};
  v1::Generation::Service service_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ListenerTest, ServesOverTcpAndOverAPrivateUnixSocket) {
  Serve("127.0.0.1:0");
  EXPECT_TRUE(Ask(Target()).ok());
  listener_->Stop();
  server_->Shutdown();
  const testing::TempDir folder;
  const std::filesystem::path path = folder / "new/a.sock";
  Serve("unix:" + path.string());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  EXPECT_TRUE(Ask("unix:" + path.string()).ok());
  listener_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ListenerTest, APrivateUnixSocketServesOnlyItsUserWithAnyMode) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const UnixPeers peers : {UnixPeers::kAnyone, UnixPeers::kOwnUser}) {
    const testing::TempDir folder;
    const std::filesystem::path path = folder / "a.sock";
    Serve("unix:" + path.string(), peers);
    std::filesystem::permissions(folder.path(), std::filesystem::perms{0755});
    std::filesystem::permissions(path, std::filesystem::perms{0666});
    const bool is_open = peers == UnixPeers::kAnyone;
    const int outcome = ConnectAsNobody(path);
    if (is_open && outcome == kNotReached) GTEST_SKIP() << "other users cannot reach " << path;
    EXPECT_EQ(outcome, is_open ? kServed : kTurnedAway);
    // The listener counts a connection after it has closed it.
    for (int i = 0; i < 30000 && !is_open && listener_->num_turned_away() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(listener_->num_turned_away(), is_open ? 0u : 1u);
    EXPECT_TRUE(Ask("unix:" + path.string()).ok()) << "its own user";
    listener_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }
}

TEST_F(ListenerTest, LocalhostIsBoundAtAllOfItsAddressesWithOnePort) {
  Serve("localhost:0");
  EXPECT_TRUE(Ask("localhost:" + std::to_string(listener_->port())).ok());
  EXPECT_TRUE(Ask(Target()).ok());
}

TEST_F(ListenerTest, ATakenPortIsRefusedWithAMessage) {
  Serve("127.0.0.1:0");
  const auto second = Listener::Bind(*Address::Parse(Target()));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("cannot listen on " + Target() + ": Address already in use"));
  EXPECT_THAT(
      std::string(Listener::Bind(*Address::Parse("no-such-name.invalid:1")).status().message()),
      HasSubstr("cannot listen on no-such-name.invalid:1: "));
}

TEST_F(ListenerTest, ConnectionsLeaveDescriptorsForEverythingElse) {
  LimitDescriptors(400);  // a quarter of them is not for connections
  Serve("127.0.0.1:0");
  std::vector<UniqueFd> clients;
  while (listener_->num_turned_away() == 0) {
    ASSERT_LT(clients.size(), 400u);
    clients.push_back(NewSocket());
    Connect(clients.back());
    // The listener may be late. Without a wait for it, the clients would take its descriptors.
    if (clients.size() > 100) IsServed(clients.back(), 5000);
  }
  const UniqueFd spare(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_GE(spare.get(), 0);
  clients.clear();
  EXPECT_TRUE(Ask(Target()).ok()) << "after the connections are gone";
}

TEST_F(ListenerTest, WithoutDescriptorsConnectionsWaitAndTheListenerGoesOn) {
  Serve("127.0.0.1:0");
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(NewSocket());
  LimitDescriptors(400);
  std::vector<UniqueFd> others;
  // gRPC may return descriptors of an earlier server meanwhile. A connection is then accepted.
  size_t num_connected = 0;
  while (listener_->num_turned_away() == 0 && num_connected < clients.size()) {
    const UniqueFd& client = clients[num_connected++];
    for (UniqueFd other(dup(client.get())); other.get() >= 0; other = UniqueFd(dup(client.get()))) {
      others.push_back(std::move(other));
    }
    Connect(client);
    for (int i = 0; i < 400 && listener_->num_turned_away() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_GT(listener_->num_turned_away(), 0u);
  others.clear();
  EXPECT_TRUE(IsServed(clients[num_connected - 1], 20000));
  EXPECT_TRUE(Ask(Target()).ok());
}

}  // namespace
}  // namespace tandem
