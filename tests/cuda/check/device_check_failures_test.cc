// Tests of the check of a GPU whose results are wrong, or whose calls fail. They run only over the
// shim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/model/cuda/check/check_memory.h"
#include "common/model/cuda/check/device_check.h"
#include "kernels/device/device.h"
#include "kernels/device/device_stream.h"
#include "services/worker/load_on_gpu.h"
#include "services/worker/worker_model.h"
#include "tests/simt/failing_calls.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DeviceCheckFailuresTest : public ::testing::Test {
 protected:
  ~DeviceCheckFailuresTest() override { simt::FailNoCall(); }

  static absl::Status Check(const KernelSettings& settings) {
    TANDEM_ASSIGN_OR_RETURN(const DeviceInfo device, UseDevice(0));
    TANDEM_ASSIGN_OR_RETURN(const DeviceStream stream, DeviceStream::Create());
    return CheckDevice(device, settings, stream);
  }

  static constexpr KernelSettings kSmall = {8, 1, DType::kBF16, DType::kBF16, 1};
};

TEST_F(DeviceCheckFailuresTest, AWrongValueIsToldToTheOperator) {
  const uint64_t before = simt::NumCopiesToHost();
  ASSERT_TRUE(Check(kSmall).ok());
  const uint64_t num_copies = simt::NumCopiesToHost() - before;
  struct Case {
    uint64_t copy;
    const char* what;  // should be right
  };
  for (const Case& c : {Case{0, "MatMul with BF16 weights, of few rows and of many"},
                        {4, "MatMul with BF16 weights, in tiles of kind 2"},
                        {8, "MatMulSwiGlu and its two steps, 30 rows"},
                        {11, "MatMulRopeAndStoreKv and its two steps, 66 rows, queries"},
                        {16, "MatMulRopeAndStoreKv and its two steps, 30 rows, pages"},
                        {18, "Attention of 16 rows at position 50 and of 150 rows"},
                        {28, "Attention of a row at position 50 and of 150 rows"},
                        {num_copies - 1, "Attention of a tree and of the chains of its paths"}}) {
    simt::SpoilCopyToHost(c.copy);
    const absl::Status status = Check(kSmall);
    simt::FailNoCall();
    ASSERT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << "copy " << c.copy;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("the GPU's kernels compute wrong results"), HasSubstr(c.what),
                      HasSubstr("(SIMT shim, compute capability 9.0, driver for CUDA"),
                      HasSubstr("Use --backend cpu")));
  }
}

TEST_F(DeviceCheckFailuresTest, AFailureOfACallIsToldAndLeaksNothing) {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  const absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
  ASSERT_TRUE(device.ok() && stream.ok());
  const KernelSettings settings = {2, 1, DType::kF32, DType::kF32, 1};
  const size_t num_live = simt::NumLive();
  const uint64_t before = simt::NumCalls();
  ASSERT_TRUE(CheckDevice(*device, settings, *stream).ok());
  const uint64_t num_calls = simt::NumCalls() - before;
  constexpr uint64_t kStep = 13;  // meets every kind of call
  std::set<std::string> failed;
  for (uint64_t call = 0; call < num_calls; call += kStep) {
    simt::FailCall(call, cudaErrorIllegalAddress);
    const absl::Status status = CheckDevice(*device, settings, *stream);
    simt::FailNoCall();
    EXPECT_EQ(simt::NumLive(), num_live) << simt::FailedCall();
    failed.insert(simt::FailedCall());
    if (testing::GivesBack(simt::FailedCall())) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << simt::FailedCall();
    EXPECT_THAT(std::string(status.message()), HasSubstr("cudaErrorIllegalAddress"));
  }
  EXPECT_GE(failed.size(), 4u);
}

TEST_F(DeviceCheckFailuresTest, AValueThatIsFarOrNoNumberIsNotNear) {
  const std::vector<float> want = {1, 2, 3, 4};
  EXPECT_TRUE(CheckNear("x", std::vector<float>{1, 2, 3.25f, 4}, want, 2, 0.25).ok());
  EXPECT_TRUE(CheckNear("x", std::vector<float>{1, 2, 3, 5}, want, 2, 0, 0.25).ok());
  for (const float wrong : {3.5f, 2.5f, std::numeric_limits<float>::quiet_NaN()}) {
    const absl::Status status = CheckNear("x", std::vector<float>{1, 2, wrong, 4}, want, 2, 0.25);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << wrong;
    EXPECT_THAT(std::string(status.message()), StartsWith("x: row 1, value 0 is"));
  }
}

TEST_F(DeviceCheckFailuresTest, AWorkerDoesNotServeOnAGpuThatComputesWrong) {
  testing::RandomModelSpec spec;
  spec.dtype = DType::kBF16;
  const testing::TempDir folder;
  testing::WriteRandomModel(folder.path(), spec);
  const auto load = [&](const std::string& backend) {
    simt::SpoilCopyToHost(1);
    auto loaded = WorkerModel::Load(
        {.folder = folder.path(), .max_slots = 1, .backend = backend, .load_on_gpu = LoadOnGpu});
    simt::FailNoCall();
    return loaded;
  };
  const absl::Status refused = load("cuda").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("compute wrong results"));
  const auto on_cpu = load("auto");
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  EXPECT_THAT((*on_cpu)->why_not_cuda(), HasSubstr("compute wrong results"));
}

}  // namespace
}  // namespace tandem
