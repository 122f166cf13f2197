// Tests the ring's rows in GPU memory over the shim. Every call of either end fails in turn.
#include "common/ring/cuda/cuda_ring_rows.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "tests/simt/failing_calls.h"

namespace tandem {
namespace {

constexpr RingGeometry kGeometry{.entries = 2, .rows_per_entry = 3, .vocabulary_size = 5};
constexpr uint64_t kNonce = 77;

// The verifier's end in a separate process, because CUDA does not open a handle in the process that
// made it.
class OtherProcess {
 public:
  explicit OtherProcess(const DeviceStream& stream) {
    int from_child[2] = {-1, -1};
    int to_child[2] = {-1, -1};
    if (pipe(from_child) != 0 || pipe(to_child) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(to_child[1]);
      Serve(stream, from_child[1], to_child[0]);
    }
    close(from_child[1]);
    close(to_child[0]);
    end_ = to_child[1];
    const auto bytes = static_cast<ssize_t>(handles_.size() * sizeof(RingHandle));
    EXPECT_EQ(read(from_child[0], handles_.data(), static_cast<size_t>(bytes)), bytes);
    close(from_child[0]);
  }
  ~OtherProcess() {
    close(end_);
    waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  const std::vector<RingHandle>& handles() const { return handles_; }

 private:
  // Keeps the rows until nobody holds the other end of `until`.
  [[noreturn]] static void Serve(const DeviceStream& stream, int to, int until) {
    simt::FailNoCall();  // planted failures are for the other end
    const auto rows = CudaRingRows::Create(kGeometry, kNonce, &stream);
    if (!rows.ok()) _exit(1);
    const std::span<const RingHandle> handles = (*rows)->handles();
    if (write(to, handles.data(), handles.size_bytes()) < 0) _exit(1);
    char end = 0;
    _exit(read(until, &end, 1) == 0 ? 0 : 1);
  }

  pid_t pid_ = -1;
  int end_ = -1;
  std::vector<RingHandle> handles_ = std::vector<RingHandle>(1 + kGeometry.entries);
};

class CudaRingRowsTest : public ::testing::Test {
 protected:
  void SetUp() override { stream_ = *DeviceStream::Create(); }
  ~CudaRingRowsTest() override { simt::FailNoCall(); }

  // The row must outlive the copies on the stream.
  std::array<float, kGeometry.vocabulary_size> row_ = {1, 2, 3, 4, 5};
  DeviceStream stream_;
};

TEST_F(CudaRingRowsTest, EachFailureAtTheVerifiersEndIsReportedAndLeaksNothing) {
  const auto work = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto rows, CudaRingRows::Create(kGeometry, kNonce, &stream_));
    TANDEM_ASSIGN_OR_RETURN(const uint64_t echo, rows->ReadEcho());
    EXPECT_EQ(echo, kNonce) << "nobody has written there yet";
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    TANDEM_RETURN_IF_ERROR(rows->AwaitReady(1, deadline));
    TANDEM_RETURN_IF_ERROR(stream_.Copy(row_.data(), rows->rows(1), sizeof(row_)));
    return stream_.Wait();
  };
  // The calls: the memory and its handle, two events and their handles, the nonce in both
  // directions, the row.
  testing::ExpectEachFailureIsTold(work, 13);
}

TEST_F(CudaRingRowsTest, EachFailureAtTheDraftersEndIsReportedAndLeaksNothing) {
  const auto work = [&]() -> absl::Status {
    const OtherProcess verifier(stream_);
    TANDEM_ASSIGN_OR_RETURN(const auto rows,
                            OpenedCudaRingRows::Open(kGeometry, verifier.handles(), &stream_));
    TANDEM_RETURN_IF_ERROR(rows->EchoNonce(kNonce));
    TANDEM_RETURN_IF_ERROR(stream_.Copy(rows->rows(1), row_.data(), sizeof(row_)));
    return rows->RecordReady(1);
  };
  // The calls: the memory, two events, the nonce in both directions, the row.
  testing::ExpectEachFailureIsTold(work, 9);
}

TEST_F(CudaRingRowsTest, ALostDeviceEndsTheWaitForRows) {
  const auto rows = CudaRingRows::Create(kGeometry, kNonce, &stream_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  simt::LoseDevice(0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  EXPECT_EQ((*rows)->AwaitReady(0, deadline).code(), absl::StatusCode::kInternal);
  EXPECT_EQ((*rows)->ReadEcho().status().code(), absl::StatusCode::kInternal);
}

TEST_F(CudaRingRowsTest, RowsThatADeadDraftersGpuNeverWroteAreGivenUpAtTheDeadline) {
  const auto rows = CudaRingRows::Create(kGeometry, kNonce, &stream_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const pid_t drafter = fork();
  if (drafter == 0) {
    const auto opened = OpenedCudaRingRows::Open(kGeometry, (*rows)->handles(), &stream_);
    // The event comes after a copy that never ends.
    const bool recorded = opened.ok() &&
                          stream_.Copy((*opened)->rows(0), row_.data(), sizeof(row_)).ok() &&
                          (*opened)->RecordReady(0).ok();
    _exit(recorded ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(drafter, &status, 0), drafter);
  ASSERT_EQ(status, 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  EXPECT_EQ((*rows)->AwaitReady(0, deadline).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE((*rows)->AwaitReady(1, deadline).ok()) << "nothing was recorded there";
}

TEST_F(CudaRingRowsTest, HandlesThatAreTooFewOrLeadElsewhereAreRefused) {
  const OtherProcess verifier(stream_);
  const std::span<const RingHandle> handles = verifier.handles();
  EXPECT_EQ(OpenedCudaRingRows::Open(kGeometry, handles.first(2), &stream_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto rows = OpenedCudaRingRows::Open(kGeometry, handles, &stream_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)->EchoNonce(kNonce + 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*rows)->EchoNonce(kNonce).ok()) << "a refusal writes nothing";
}

}  // namespace
}  // namespace tandem
