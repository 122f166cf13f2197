// Tests the ring whose rows are in a device's memory, over a fake device. Each call of the device
// fails in turn, and drafters die with the memory open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/ring/log_prob_ring.h"
#include "common/ring/retired_rings.h"
#include "common/ring/ring_writer.h"
#include "common/status.h"

namespace tandem::device_ring_test {
namespace {

using ::testing::HasSubstr;

constexpr RingGeometry kGeometry{.entries = 2, .rows_per_entry = 3, .vocabulary_size = 5};
constexpr uint64_t kEpoch = 78;

// The memory of a GPU, and the work that was enqueued there. `recorded` is the state that a host
// knows, and `reached` is the progress of the GPU.
struct FakeDevice {
  std::vector<float> rows =
      std::vector<float>(kGeometry.entries * kGeometry.entry_bytes() / sizeof(float));
  uint64_t nonce = 0;
  std::vector<int> recorded = std::vector<int>(kGeometry.entries);
  std::vector<int> reached = std::vector<int>(kGeometry.entries);
  bool runs = true;          // a recorded event is reached at once
  bool keeps_writes = true;  // false: another device's memory was opened
  std::function<void()> at_record = [] {};
  int num_live = 0;  // number of ends that hold memory or events of the device
  int calls = 0;
  int failing_call = -1;

  absl::Status Call(const char* what) {
    if (calls++ != failing_call) return absl::OkStatus();
    return Internal(std::string(what) + " failed");
  }
  float* Entry(uint32_t entry) {
    return rows.data() + entry * kGeometry.entry_bytes() / sizeof(float);
  }
};

class FakeRows final : public RingRows {
 public:
  explicit FakeRows(FakeDevice* device) : device_(device), handles_(1 + kGeometry.entries) {
    ++device_->num_live;
    for (size_t i = 0; i < handles_.size(); ++i) handles_[i][0] = std::byte(i + 1);
  }
  ~FakeRows() override { --device_->num_live; }

  std::span<const RingHandle> handles() const override { return handles_; }
  float* rows(uint32_t entry) const override { return device_->Entry(entry); }
  absl::StatusOr<uint64_t> ReadEcho() override {
    TANDEM_RETURN_IF_ERROR(device_->Call("ReadEcho"));
    return device_->nonce;
  }
  absl::Status AwaitReady(uint32_t entry, std::chrono::steady_clock::time_point) override {
    TANDEM_RETURN_IF_ERROR(device_->Call("AwaitReady"));
    if (device_->reached[entry] == device_->recorded[entry]) return absl::OkStatus();
    return FailedPrecondition("its rows are not there");
  }

 private:
  FakeDevice* device_;
  std::vector<RingHandle> handles_;
};

class FakeOpenedRows final : public OpenedRingRows {
 public:
  explicit FakeOpenedRows(FakeDevice* device) : device_(device) { ++device_->num_live; }
  ~FakeOpenedRows() override { --device_->num_live; }

  float* rows(uint32_t entry) const override { return device_->Entry(entry); }
  absl::Status EchoNonce(uint64_t nonce) override {
    TANDEM_RETURN_IF_ERROR(device_->Call("EchoNonce"));
    EXPECT_EQ(device_->nonce, nonce);
    if (device_->keeps_writes) device_->nonce = ~nonce;
    return absl::OkStatus();
  }
  absl::Status RecordReady(uint32_t entry) override {
    TANDEM_RETURN_IF_ERROR(device_->Call("RecordReady"));
    device_->at_record();
    ++device_->recorded[entry];
    if (device_->runs) device_->reached[entry] = device_->recorded[entry];
    return absl::OkStatus();
  }

 private:
  FakeDevice* device_;
};

class DeviceRingTest : public ::testing::Test {
 protected:
  absl::Status SetUpRing() {
    TANDEM_ASSIGN_OR_RETURN(ring_, LogProbRing::CreateOnDevice(kGeometry, kEpoch, Creator()));
    TANDEM_ASSIGN_OR_RETURN(writer_, Open());
    return ring_->Confirm(writer_->nonce());
  }

  CreateRingRows Creator() {
    return [this](const RingGeometry& geometry,
                  uint64_t nonce) -> absl::StatusOr<std::unique_ptr<RingRows>> {
      EXPECT_EQ(geometry, kGeometry);
      TANDEM_RETURN_IF_ERROR(device_.Call("create"));
      device_.nonce = nonce;
      return std::make_unique<FakeRows>(&device_);
    };
  }

  absl::StatusOr<std::unique_ptr<SharedRingWriter>> Open() {
    return SharedRingWriter::Open(UniqueFd(dup(ring_->fd())), kGeometry, kEpoch,
                                  [this](const RingGeometry&, std::span<const RingHandle> handles)
                                      -> absl::StatusOr<std::unique_ptr<OpenedRingRows>> {
                                    EXPECT_EQ(handles.size(), 1 + kGeometry.entries);
                                    EXPECT_EQ(handles.back()[0], std::byte(1 + kGeometry.entries));
                                    TANDEM_RETURN_IF_ERROR(device_.Call("open"));
                                    return std::make_unique<FakeOpenedRows>(&device_);
                                  });
  }

  RingRef Ref(uint32_t entry) {
    return {.ring_epoch = kEpoch, .entry = entry, .sequence = ++sequence_};
  }

  // Hands over a block of two rows.
  absl::Status HandOver(uint32_t entry) {
    const RingRef ref = Ref(entry);
    TANDEM_ASSIGN_OR_RETURN(const std::span<float> rows, writer_->BeginBlock(ref, 2));
    EXPECT_EQ(rows.data(), device_.Entry(entry));
    std::fill(rows.begin(), rows.end(), static_cast<float>(sequence_));
    writer_->CommitBlock(ref, 2);
    TANDEM_ASSIGN_OR_RETURN(const RingBlock block, ring_->Acquire(ref, 2));
    EXPECT_EQ(block.rows(), device_.Entry(entry));
    EXPECT_EQ(block.rows()[9], static_cast<float>(sequence_));
    return absl::OkStatus();
  }

  // Everything that holds device memory is destroyed in the order of live processes.
  void TearDown() override {
    writer_.reset();
    if (ring_ != nullptr) retired_.Add(std::move(ring_), {});
    EXPECT_EQ(device_.num_live, 0);
  }

  FakeDevice device_;
  RetiredRings retired_;
  std::unique_ptr<LogProbRing> ring_;
  std::unique_ptr<SharedRingWriter> writer_;
  uint64_t sequence_ = 0;
};

TEST_F(DeviceRingTest, RowsAreHandedOverWithoutBeingTouched) {
  ASSERT_TRUE(SetUpRing().ok());
  EXPECT_TRUE(ring_->on_device());
  for (int round = 0; round < 5; ++round) {
    for (const uint32_t entry : {0u, 1u}) {
      const absl::Status status = HandOver(entry);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(DeviceRingTest, HostMemoryHoldsNoRows) {
  ASSERT_TRUE(SetUpRing().ok());
  EXPECT_EQ(lseek(ring_->fd(), 0, SEEK_END), static_cast<off_t>(kGeometry.control_bytes()));
  EXPECT_EQ(ring_->bytes(), kGeometry.total_bytes());
}

TEST_F(DeviceRingTest, WritesThatDoNotArriveAreNotConfirmed) {
  device_.keeps_writes = false;
  const absl::Status status = SetUpRing();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device"));
}

// Otherwise a verifier could query the event before it is recorded, and CUDA counts such an event
// as reached.
TEST_F(DeviceRingTest, AnEntryIsReadyOnlyOnceItsEventIsRecorded) {
  ASSERT_TRUE(SetUpRing().ok());
  absl::Status before;
  device_.at_record = [&] {
    before = ring_->Acquire({.ring_epoch = kEpoch, .entry = 0, .sequence = sequence_}, 2).status();
  };
  ASSERT_TRUE(HandOver(0).ok());
  EXPECT_EQ(before.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DeviceRingTest, TheWaitForMissingRowsEnds) {
  ASSERT_TRUE(SetUpRing().ok());
  device_.runs = false;
  EXPECT_THAT(std::string(HandOver(0).message()), HasSubstr("not there"));
  device_.runs = true;
  EXPECT_TRUE(HandOver(0).ok()) << "the entry was given back";
}

TEST_F(DeviceRingTest, EveryFailingCallReturnsAStatusAndLeaksNothing) {
  ASSERT_TRUE(SetUpRing().ok());
  ASSERT_TRUE(HandOver(0).ok());
  const int all = device_.calls;
  ASSERT_GE(all, 6);
  for (int failing = 0; failing < all; ++failing) {
    TearDown();
    device_ = {};
    device_.failing_call = failing;
    absl::Status status = SetUpRing();
    if (status.ok()) {
      status = HandOver(0);
      EXPECT_TRUE(HandOver(0).ok()) << "the ring still works after call " << failing;
    }
    EXPECT_FALSE(status.ok()) << failing;
  }
}

TEST_F(DeviceRingTest, ADetachedRingIsFreed) {
  ASSERT_TRUE(SetUpRing().ok());
  std::vector<UniqueFd> peers;
  // This process stays alive.
  peers.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  ASSERT_TRUE(peers[0]);
  retired_.Add(std::move(ring_), std::move(peers));
  EXPECT_EQ(retired_.Sweep(), 1) << "the drafter has it open";
  EXPECT_EQ(device_.num_live, 2);
  writer_.reset();
  EXPECT_EQ(retired_.Sweep(), 0);
}

TEST_F(DeviceRingTest, ARingThatCouldNotBeOpenedIsDetached) {
  ring_ = *LogProbRing::CreateOnDevice(kGeometry, kEpoch, Creator());
  // The call that reads the nonce, after the memory is open.
  device_.failing_call = device_.calls + 1;
  EXPECT_FALSE(Open().ok());
  EXPECT_TRUE(ring_->Withdraw());
}

TEST_F(DeviceRingTest, ARingThatWasWithdrawnIsNotOpenedAnyMore) {
  ring_ = *LogProbRing::CreateOnDevice(kGeometry, kEpoch, Creator());
  EXPECT_TRUE(ring_->Withdraw()) << "nobody had it open";
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("withdrawn"));
  EXPECT_TRUE(ring_->Withdraw());
}

TEST_F(DeviceRingTest, ARingWaitsForAPeerThatNobodyCanWatch) {
  ASSERT_TRUE(SetUpRing().ok());
  std::vector<UniqueFd> peers;
  peers.emplace_back();  // the kernel gave no pidfd
  retired_.Add(std::move(ring_), std::move(peers));
  EXPECT_EQ(retired_.Sweep(), 1);
  writer_.reset();
  EXPECT_EQ(retired_.Sweep(), 0);
}

TEST_F(DeviceRingTest, ARingWhoseDrafterDiedIsFreedAfterItsDeath) {
  ASSERT_TRUE(SetUpRing().ok());
  const pid_t drafter = fork();
  if (drafter == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(drafter, 0);
  std::vector<UniqueFd> peers;
  peers.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, drafter, 0)));
  ASSERT_TRUE(peers[0]);
  retired_.Add(std::move(ring_), std::move(peers));
  EXPECT_EQ(retired_.Sweep(), 1);
  kill(drafter, SIGKILL);
  waitpid(drafter, nullptr, 0);
  EXPECT_EQ(retired_.Sweep(), 0);
}

}  // namespace
}  // namespace tandem::device_ring_test
