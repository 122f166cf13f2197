// The fixture for tests of device code. They run on a GPU (`ctest -L gpu`), and everywhere over the
// shim of tests/simt.
#ifndef TANDEM_TESTS_CUDA_KERNELS_DEVICE_TEST_H_
#define TANDEM_TESTS_CUDA_KERNELS_DEVICE_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem::testing {

class DeviceTest : public ::testing::Test {
 protected:
  static constexpr size_t kArenaBytes = size_t{64} << 20;

  void SetUp() override {
    const absl::StatusOr<DeviceInfo> device = UseDevice(0);
    if (!device.ok()) GTEST_SKIP() << "skipped: no GPU: " << device.status();
    absl::StatusOr<DeviceArena> arena = DeviceArena::Create(kArenaBytes);
    ASSERT_TRUE(arena.ok()) << arena.status();
    arena_ = *std::move(arena);
    absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }

  CudaStream stream() const { return stream_.get(); }
  const DeviceStream& device_stream() const { return stream_; }

  // Returns device memory with these values, or null if `values` is empty.
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    if (values.empty()) return nullptr;
    absl::StatusOr<T*> memory = arena_.Take<T>(values.size(), "a test's array");
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(stream_.Copy(*memory, values.data(), values.size() * sizeof(T)).ok());
    EXPECT_TRUE(stream_.Wait().ok());
    return *memory;
  }

  // Reads after all enqueued work is done.
  template <typename T>
  std::vector<T> Download(const T* memory, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(stream_.Copy(values.data(), memory, count * sizeof(T)).ok());
    const absl::Status done = stream_.Wait();
    EXPECT_TRUE(done.ok()) << done;
    return values;
  }

  std::vector<float> Uniform(size_t count, float low = -1, float high = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = std::uniform_real_distribution<float>(low, high)(random_);
    return values;
  }

  std::mt19937_64 random_{1};

 private:
  DeviceArena arena_;
  DeviceStream stream_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_CUDA_KERNELS_DEVICE_TEST_H_
