#include "common/ring/ring_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>

#include "common/ring/log_prob_ring.h"
#include "common/ring/ring_writer.h"
#include "tests/support/temp_dir.h"

namespace tandem::ring_socket_test {
namespace {

using ::testing::HasSubstr;

constexpr RingGeometry kGeometry{.entries = 2, .rows_per_entry = 2, .vocabulary_size = 16};

mode_t ModeOf(const std::filesystem::path& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

bool Connect(const UniqueFd& peer, const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  return connect(peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// Returns the processor time of all threads of this process.
double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::filesystem::path PrivateFolder(const testing::TempDir& dir) { return dir.path() / "ring"; }

TEST(RingMemoryTest, RefusesMemoryThatCanChangeItsSize) {
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_FALSE(RingMemory::MapShared(UniqueFd(dup(unsealed.get())), 8192).ok());
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_FALSE(RingMemory::MapShared(UniqueFd(dup(unsealed.get())), 8192).ok()) << "could shrink";
}

TEST(RingMemoryTest, RefusesFilesAndOtherSizes) {
  const testing::TempDir dir;
  UniqueFd file(open((dir / "file").c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  EXPECT_FALSE(RingMemory::MapShared(std::move(file), 8192).ok());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(RingMemory::MapShared(UniqueFd(ends[0]), 8192).ok());
  close(ends[1]);
  const auto memory = RingMemory::CreateShared(8192);
  ASSERT_TRUE(memory.ok());
  EXPECT_FALSE(RingMemory::MapShared(UniqueFd(dup(memory->fd())), 4096).ok());
  EXPECT_FALSE(RingMemory::MapShared(UniqueFd(dup(memory->fd())), 16384).ok());
  EXPECT_TRUE(RingMemory::MapShared(UniqueFd(dup(memory->fd())), 8192).ok());
  EXPECT_NE(ftruncate(memory->fd(), 0), 0) << "sealed";
}

TEST(RingListenerTest, HandsTheRingToAnotherProcess) {
  const testing::TempDir dir;
  auto listener = RingListener::Start(PrivateFolder(dir));
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto ring = *LogProbRing::Create(kGeometry, 42, /*shared=*/true);
  ASSERT_TRUE((*listener)->Offer(42, ring->fd()).ok());

  int nonce_pipe[2];
  ASSERT_EQ(pipe(nonce_pipe), 0);
  const pid_t drafter = fork();
  if (drafter == 0) {
    auto fd = FetchRing((*listener)->path(), 42);
    if (!fd.ok()) _exit(1);
    auto writer = SharedRingWriter::Open(*std::move(fd), kGeometry, 42);
    if (!writer.ok()) _exit(2);
    const RingRef ref{.ring_epoch = 42, .entry = 1, .sequence = 1};
    auto rows = (*writer)->BeginBlock(ref, 2);
    if (!rows.ok()) _exit(3);
    for (float& value : *rows) value = -0.25f;
    (*writer)->CommitBlock(ref, 2);
    const uint64_t nonce = (*writer)->nonce();
    _exit(write(nonce_pipe[1], &nonce, sizeof(nonce)) == sizeof(nonce) ? 0 : 4);
  }
  ASSERT_GT(drafter, 0);
  int status = 0;
  ASSERT_EQ(waitpid(drafter, &status, 0), drafter);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  uint64_t nonce = 0;
  ASSERT_EQ(read(nonce_pipe[0], &nonce, sizeof(nonce)), ssize_t{sizeof(nonce)});
  close(nonce_pipe[0]);
  close(nonce_pipe[1]);

  ASSERT_TRUE(ring->Confirm(nonce).ok());
  // The drafter is dead, and its committed block is there.
  const auto block = ring->Acquire({.ring_epoch = 42, .entry = 1, .sequence = 1}, 2);
  ASSERT_TRUE(block.ok()) << block.status();
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(block->rows()[i], -0.25f);
}

TEST(RingListenerTest, OtherEpochsAndWithdrawnRingsAreNotFound) {
  const testing::TempDir dir;
  auto listener = *RingListener::Start(PrivateFolder(dir));
  auto ring = *LogProbRing::Create(kGeometry, 7, true);
  ASSERT_TRUE(listener->Offer(7, ring->fd()).ok());
  EXPECT_EQ(FetchRing(listener->path(), 6).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(FetchRing(listener->path(), 7).ok());
  listener->Withdraw(7);
  EXPECT_EQ(FetchRing(listener->path(), 7).status().code(), absl::StatusCode::kNotFound);
}

TEST(RingListenerTest, ASilentPeerDoesNotKeepOthersOut) {
  const testing::TempDir dir;
  auto listener = *RingListener::Start(PrivateFolder(dir));
  auto ring = *LogProbRing::Create(kGeometry, 7, true);
  ASSERT_TRUE(listener->Offer(7, ring->fd()).ok());
  UniqueFd silent(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_TRUE(Connect(silent, listener->path()));
  EXPECT_TRUE(FetchRing(listener->path(), 7).ok());
}

TEST(RingListenerTest, DoesNotSpinWhileTheProcessHasNoDescriptorLeft) {
  const testing::TempDir dir;
  auto listener = *RingListener::Start(PrivateFolder(dir));
  auto ring = *LogProbRing::Create(kGeometry, 7, true);
  ASSERT_TRUE(listener->Offer(7, ring->fd()).ok());
  UniqueFd waiting(socket(AF_UNIX, SOCK_STREAM, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(waiting.get());
  close(lowest_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ASSERT_EQ(dup(waiting.get()), -1);
  ASSERT_TRUE(Connect(waiting, listener->path()));
  const double start = CpuSeconds();
  poll(nullptr, 0, 500);  // in this time, a listener that spins would be noticed
  const double spent = CpuSeconds() - start;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(spent, 0.02);
  EXPECT_TRUE(FetchRing(listener->path(), 7).ok()) << "serves again";
}

TEST(RingListenerTest, OnlyTheUserCanReachTheSocket) {
  const testing::TempDir dir;
  auto listener = *RingListener::Start(PrivateFolder(dir));
  EXPECT_EQ(ModeOf(listener->path()), 0600);
  EXPECT_EQ(ModeOf(listener->path().parent_path()), 0700);
}

TEST(RingListenerTest, RefusesAFolderThatOthersCanEnter) {
  const testing::TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  const auto listener = RingListener::Start(dir.path());
  EXPECT_THAT(std::string(listener.status().message()), HasSubstr("0700"));
  EXPECT_FALSE(RingListener::Start(dir / (std::string(120, 'x'))).ok()) << "path too long";
}

TEST(RingListenerTest, LeavesNothingBehind) {
  const testing::TempDir dir;
  std::filesystem::path own_folder;
  {
    auto named = *RingListener::Start(PrivateFolder(dir));
    auto unnamed = *RingListener::Start("");
    own_folder = unnamed->path().parent_path();
    EXPECT_EQ(ModeOf(own_folder), 0700);
  }
  EXPECT_TRUE(std::filesystem::is_empty(PrivateFolder(dir)));
  EXPECT_FALSE(std::filesystem::exists(own_folder));
}

TEST(FetchRingTest, SaysWhenNobodyListens) {
  const testing::TempDir dir;
  EXPECT_EQ(FetchRing(dir / "nobody.sock", 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FetchRing("", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::ring_socket_test
