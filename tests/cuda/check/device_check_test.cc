#include "common/model/cuda/check/device_check.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/device/device.h"
#include "kernels/device/device_stream.h"

namespace tandem {
namespace {

TEST(DeviceCheckTest, RightKernelsPassWithEverySetting) {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  if (!device.ok()) GTEST_SKIP() << "skipped: no GPU: " << device.status();
  const absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
  ASSERT_TRUE(stream.ok()) << stream.status();
  const KernelSettings all[] = {
      {64, 1, DType::kBF16, DType::kBF16, 1}, {128, 1, DType::kBF16, DType::kBF16, 1},
      {16, 3, DType::kBF16, DType::kBF16, 1}, {64, 1, DType::kBF16, DType::kBF16, 3},
      {4, 2, DType::kF32, DType::kF32, 3},    {14, 1, DType::kBF16, DType::kF32, 1},
      {8, 2, DType::kF16, DType::kF16, 1}};
  for (const KernelSettings& settings : all) {
    const absl::Status status = CheckDevice(*device, settings, *stream);
    EXPECT_TRUE(status.ok()) << "head size " << settings.head_size << ": " << status;
  }
}

}  // namespace
}  // namespace tandem
