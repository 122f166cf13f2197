// Tests common/rpc: addresses, socket paths, status codes, and the queue of a stream's writes.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "common/ring/unique_fd.h"
#include "common/rpc/address.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/write_queue.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

UniqueFd BindSocket(const std::filesystem::path& path, bool listening) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  if (listening) {
    EXPECT_EQ(listen(fd.get(), 1), 0);
  }
  return fd;
}

TEST(AddressTest, ReadsWhatPeopleWrite) {
  const Address unix_address = *Address::Parse("unix:/run/a.sock");
  EXPECT_TRUE(unix_address.is_unix());
  EXPECT_TRUE(unix_address.is_loopback());
  EXPECT_EQ(unix_address.path(), "/run/a.sock");
  EXPECT_EQ(unix_address.ToString(1), "unix:/run/a.sock");
  EXPECT_EQ(Address::Parse("unix:///run/a.sock")->path(), "/run/a.sock");
  EXPECT_EQ(Address::Parse("unix:a.sock")->path(), "a.sock");
  const Address v4 = *Address::Parse("127.0.0.1:0");
  EXPECT_EQ(v4.port(), 0);
  EXPECT_EQ(v4.ToString(4321), "127.0.0.1:4321");
  const Address v6 = *Address::Parse("[::1]:80");
  EXPECT_EQ(v6.host(), "::1");
  EXPECT_TRUE(v6.is_loopback());
  EXPECT_EQ(v6.ToGrpc(), "[::1]:80");
}

TEST(AddressTest, RefusesTextsThatAreNoAddress) {
  for (const char* text : {"", "host", ":80", "host:", "host:x", "host:65536", "host:-1", "host:1x",
                           "unix:", "::1:80"}) {
    EXPECT_EQ(Address::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(Address::Parse("unix:/" + std::string(107, 'x')).ok());
  EXPECT_TRUE(Address::Parse("unix:/" + std::string(106, 'x')).ok());
}

TEST(AddressTest, OnlyLoopbackIsBoundUnlessInsecure) {
  for (const char* text : {"unix:x", "localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"}) {
    EXPECT_TRUE(CheckBindIsLocal(*Address::Parse(text), false).ok()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(CheckBindIsLocal(*Address::Parse(text), false).ok()) << text;
    EXPECT_TRUE(CheckBindIsLocal(*Address::Parse(text), true).ok()) << text;
  }
}

TEST(SocketPathTest, RemovesASocketThatNobodyListensOn) {
  const testing::TempDir dir;
  const Address address = *Address::Parse("unix:" + (dir / "a.sock").string());
  EXPECT_TRUE(PrepareSocketPath(address).ok()) << "nothing is there";
  BindSocket(address.path(), false);
  EXPECT_TRUE(PrepareSocketPath(address).ok());
  EXPECT_FALSE(std::filesystem::exists(address.path()));
}

TEST(SocketPathTest, LeavesASocketThatIsListenedOn) {
  const testing::TempDir dir;
  const Address address = *Address::Parse("unix:" + (dir / "a.sock").string());
  const UniqueFd listener = BindSocket(address.path(), true);
  EXPECT_EQ(PrepareSocketPath(address).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(address.path()));
}

TEST(SocketPathTest, LeavesOtherFiles) {
  const testing::TempDir dir;
  const Address address = *Address::Parse("unix:" + (dir / "a.txt").string());
  std::ofstream(address.path()) << "text";
  EXPECT_EQ(PrepareSocketPath(address).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(address.path()));
}

TEST(SocketPathTest, MakesTheFolderOnlyForTheUser) {
  const testing::TempDir dir;
  ASSERT_TRUE(PrepareSocketPath(*Address::Parse("unix:" + (dir / "new/a.sock").string())).ok());
  struct stat info {};
  ASSERT_EQ(stat((dir / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST(GrpcStatusTest, CodesAndMessagesReachTheWire) {
  const grpc::Status status = ToGrpcStatus(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "full");
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_EQ(ToWorkerCode(absl::StatusCode::kAborted), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(ToWorkerCode(absl::StatusCode::kUnknown), v1::WORKER_CODE_INTERNAL);
}

TEST(WriteQueueTest, OneMessageIsWrittenAtATime) {
  WriteQueue<int> queue;
  EXPECT_EQ(queue.Begin(), nullptr);
  queue.Push(1);
  queue.Push(2);
  queue.Push(3);
  EXPECT_EQ(*queue.Begin(), 1);
  EXPECT_EQ(queue.Begin(), nullptr);
  queue.End();
  EXPECT_EQ(*queue.Begin(), 2);
  queue.Clear();
  EXPECT_EQ(queue.size(), 1) << "the message that is being written stays";
  queue.End();
  EXPECT_EQ(queue.Begin(), nullptr);
}

}  // namespace
}  // namespace tandem
