#include "services/cli/client/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

namespace asio = boost::asio;
using ::testing::HasSubstr;

TEST(ListenAddressTest, HostAndPortAreSplitAtTheLastColon) {
  const auto address = ParseListenAddress("[::1]:8080");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(address->port, 8080);
  EXPECT_EQ(ParseListenAddress("unix:/a/b.sock")->unix_path, "/a/b.sock");
}

TEST(ListenAddressTest, AnyOtherTextIsRefused) {
  for (const char* bad : {"", "50051", ":50051", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000",
                          "127.0.0.1:-1", "127.0.0.1:5x", "::1:50051", "[]:1", "unix:"}) {
    EXPECT_EQ(ParseListenAddress(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(ParseListenAddress("unix:/" + std::string(200, 'x')).ok());
}

TEST(ListenAddressTest, OnlyLoopbackAndUnixSocketsAreLocal) {
  for (const char* local : {"127.0.0.1:0", "127.8.9.1:5", "localhost:5", "[::1]:5", "unix:/x"}) {
    EXPECT_TRUE(IsLocal(*ParseListenAddress(local))) << local;
  }
  for (const char* reachable : {"0.0.0.0:0", "[::]:5", "192.168.1.2:5", "myhost:5"}) {
    EXPECT_FALSE(IsLocal(*ParseListenAddress(reachable))) << reachable;
  }
}

TEST(ListenAddressTest, APortInUseIsTaken) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), 0});
  const std::string port = std::to_string(acceptor.local_endpoint().port());
  const absl::Status taken = CheckFree(*ParseListenAddress("127.0.0.1:" + port));
  EXPECT_EQ(taken.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(taken.message()), HasSubstr(port));
  acceptor.close();
  EXPECT_TRUE(CheckFree(*ParseListenAddress("127.0.0.1:" + port)).ok());
  EXPECT_TRUE(CheckFree(*ParseListenAddress("127.0.0.1:0")).ok());
}

TEST(ListenAddressTest, ASocketIsTakenWhileSomebodyListens) {
  const testing::TempDir dir;
  const std::string path = (dir / "s.sock").string();
  const ListenAddress address = *ParseListenAddress("unix:" + path);
  EXPECT_TRUE(CheckFree(address).ok());
  {
    asio::io_context io;
    const asio::local::stream_protocol::acceptor acceptor(
        io, asio::local::stream_protocol::endpoint(path));
    EXPECT_EQ(CheckFree(address).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(CheckFree(address).ok());  // its name is still there, but nobody listens
  std::ofstream(dir / "file") << "x";
  EXPECT_EQ(CheckFree(*ParseListenAddress("unix:" + (dir / "file").string())).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::cli
