// Tests of the owners of device memory, streams and events. Every runtime call is made to fail in
// turn. They run only over the shim.
#include "tests/cuda/kernels/device_test.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <string>

#include "kernels/device/device_graph.h"
#include "kernels/rms_norm.h"
#include "tests/simt/fake_runtime.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

class RuntimeTest : public ::testing::Test {
 protected:
  ~RuntimeTest() override {
    simt::FailNoCall();
    simt::SetDeviceCount(1);
  }
};

TEST_F(RuntimeTest, AnArenaIsCutIntoAlignedPiecesAndNamesAPieceThatDoesNotFit) {
  absl::StatusOr<DeviceArena> arena = DeviceArena::Create(1000);
  ASSERT_TRUE(arena.ok());
  const absl::StatusOr<float*> one = arena->Take<float>(3, "a");
  const absl::StatusOr<float*> two = arena->Take<float>(100, "b");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*two) - reinterpret_cast<uintptr_t>(*one),
            DeviceArena::kAlignment);
  EXPECT_EQ(arena->used(), 768u);
  const absl::StatusOr<float*> three = arena->Take<float>(60, "KV pages");
  EXPECT_EQ(three.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(three.status().message()),
              HasSubstr("KV pages takes 60 x 4 bytes, and 232 of 1000 are left"));
  EXPECT_FALSE(arena->Take<double>(SIZE_MAX / 4, "too many to count").ok());
}

TEST_F(RuntimeTest, AnArenaLargerThanTheDeviceIsRefusedWithTheSizes) {
  const absl::StatusOr<DeviceArena> arena = DeviceArena::Create(size_t{5} << 30);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(arena.status().message()),
              HasSubstr("5368709120 bytes are wanted, and 1073741824 of 1073741824 are free"));
}

TEST_F(RuntimeTest, WithoutAGpuTheErrorSaysWhy) {
  simt::SetDeviceCount(0);
  const absl::StatusOr<DeviceInfo> none = UseDevice(0);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("looking for a GPU"));
  simt::SetDeviceCount(1);
  EXPECT_THAT(std::string(UseDevice(3).status().message()),
              HasSubstr("there is no GPU 3: this machine has 1"));
}

TEST_F(RuntimeTest, ADeviceIsLostWhenEveryCallFailsAndNotWhenOneDoes) {
  ASSERT_TRUE(UseDevice(0).ok());
  const absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
  ASSERT_TRUE(stream.ok());
  EXPECT_FALSE(IsDeviceLost(0));
  simt::FailCall(0, cudaErrorIllegalAddress);
  EXPECT_FALSE(stream->Wait().ok());
  EXPECT_FALSE(IsDeviceLost(0)) << "one call failed";
  for (const uint64_t number : {uint64_t{0}, uint64_t{1}}) {
    simt::FailCall(number, cudaErrorMemoryAllocation);
    EXPECT_FALSE(IsDeviceLost(0)) << "memory is short";
  }
  simt::LoseDevice(1);
  EXPECT_TRUE(stream->Wait().ok());
  EXPECT_FALSE(stream->Wait().ok());
  EXPECT_TRUE(IsDeviceLost(0));
  EXPECT_TRUE(IsDeviceLost(0));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// Does the work of a worker's start and of one step on a small scale. Everything that it took is
// given back even after a failure.
absl::Status Work() {
  if (absl::Status status = UseDevice(0).status(); !status.ok()) return status;
  absl::StatusOr<DeviceArena> arena = DeviceArena::Create(1 << 16);
  if (!arena.ok()) return arena.status();
  // The memory is made before the streams, because their work may still use it when they end.
  absl::StatusOr<PinnedMemory> pinned = PinnedMemory::Create(64 * sizeof(float));
  if (!pinned.ok()) return pinned.status();
  std::array<float, 64> elsewhere = {};
  absl::StatusOr<PinnedRange> range = PinnedRange::Create(elsewhere.data(), sizeof(elsewhere));
  if (!range.ok()) return range.status();
  absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
  if (!stream.ok()) return stream.status();
  absl::StatusOr<DeviceStream> other = DeviceStream::Create();
  if (!other.ok()) return other.status();
  absl::StatusOr<DeviceEvent> event = DeviceEvent::Create();
  if (!event.ok()) return event.status();
  auto* const host = static_cast<float*>(pinned->data());
  std::fill_n(host, 64, 2.0f);
  const absl::StatusOr<float*> x = arena->Take<float>(64, "x");
  if (!x.ok()) return x.status();
  if (absl::Status status = stream->Clear(*x, 64 * sizeof(float)); !status.ok()) return status;
  if (absl::Status status = stream->Copy(*x, host, 64 * sizeof(float)); !status.ok()) return status;
  RmsNormArgs args{.x = *x,
                   .x_stride = 64,
                   .rows = 1,
                   .size = 64,
                   .weight = *x,
                   .eps = 0,
                   .out = *x,
                   .out_stride = 64};
  if (absl::Status status = RmsNorm(args, stream->get()); !status.ok()) return status;
  if (absl::Status status = stream->CopyRows(*x + 32, *x, 4 * sizeof(float), 2 * sizeof(float), 4);
      !status.ok()) {
    return status;
  }
  const auto copy_one = [&] { return stream->Copy(*x + 1, *x, sizeof(float)); };
  const absl::StatusOr<DeviceGraph> graph = DeviceGraph::Record(*stream, copy_one);
  if (!graph.ok()) return graph.status();
  if (absl::Status status = graph->Start(*stream); !status.ok()) return status;
  if (absl::Status status = event->Record(*stream); !status.ok()) return status;
  for (;;) {
    const absl::StatusOr<bool> reached = event->IsReached();
    if (!reached.ok()) return reached.status();
    if (*reached) break;
  }
  if (absl::Status status = other->Copy(host, *x, 64 * sizeof(float)); !status.ok()) return status;
  if (absl::Status status = other->Wait(); !status.ok()) return status;
  EXPECT_EQ(host[63], 2.0f);
  return absl::OkStatus();
}

TEST_F(RuntimeTest, AFailureOfAnyCallLeaksNothingAndTheStatusNamesIt) {
  uint64_t before = simt::NumCalls();
  ASSERT_TRUE(Work().ok());
  const uint64_t num_calls = simt::NumCalls() - before;
  ASSERT_GT(num_calls, 20u);
  ASSERT_EQ(simt::NumLive(), 0u);
  size_t num_failed = 0;
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
    for (uint64_t call = 0; call < num_calls; ++call) {
      simt::FailCall(call, error);
      const absl::Status status = Work();
      EXPECT_EQ(simt::NumLive(), 0u) << "call " << call;
      if (status.ok()) continue;  // the call freed something, and nobody needs its error
      ++num_failed;
      EXPECT_EQ(status.code(), error == cudaErrorMemoryAllocation
                                   ? absl::StatusCode::kResourceExhausted
                                   : absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(status.message()), HasSubstr(cudaGetErrorName(error))) << status;
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the next launch would report the error";
    }
  }
  EXPECT_GE(num_failed, 2 * (num_calls - 12)) << "all calls except those that free something";
}

class GraphTest : public RuntimeTest {
 protected:
  static constexpr size_t kBytes = 4 * sizeof(float);

  void SetUp() override {
    arena_ = *DeviceArena::Create(1 << 12);
    stream_ = *DeviceStream::Create();
    from_ = *arena_.Take<float>(4, "from");
    to_ = *arena_.Take<float>(4, "to");
  }
  // Returns the value at `to_` after all enqueued work is done.
  float Read() {
    float value = 0;
    EXPECT_TRUE(stream_.Copy(&value, to_, sizeof(value)).ok());
    EXPECT_TRUE(stream_.Wait().ok());
    return value;
  }
  void Write(float* to, float value) {
    EXPECT_TRUE(stream_.Copy(to, &value, sizeof(value)).ok());
    EXPECT_TRUE(stream_.Wait().ok());
  }

  DeviceArena arena_;
  DeviceStream stream_;
  float* from_ = nullptr;
  float* to_ = nullptr;
};

TEST_F(GraphTest, RecordingDoesNothingAndEachStartDoesAllWork) {
  Write(from_, 1);
  Write(to_, 0);
  const absl::StatusOr<DeviceGraph> graph =
      DeviceGraph::Record(stream_, [&] { return stream_.Copy(to_, from_, kBytes); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Read(), 0);
  for (const float value : {2.0f, 3.0f}) {  // the value at the start counts
    Write(from_, value);
    ASSERT_TRUE(graph->Start(stream_).ok());
    EXPECT_EQ(Read(), value);
  }
}

TEST_F(GraphTest, WorkThatCannotBeRecordedIsAnErrorAndTheStreamGoesOn) {
  const absl::StatusOr<DeviceGraph> waits =
      DeviceGraph::Record(stream_, [&] { return stream_.Wait(); });
  EXPECT_EQ(waits.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(waits.status().message()), HasSubstr("cudaStreamSynchronize"));
  const absl::StatusOr<DeviceGraph> waits_unseen = DeviceGraph::Record(stream_, [&] {
    static_cast<void>(stream_.Wait());
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(waits_unseen.status().message()), HasSubstr("cudaStreamEndCapture"));
  const absl::StatusOr<DeviceGraph> fails =
      DeviceGraph::Record(stream_, [] { return absl::DataLossError("of the caller"); });
  EXPECT_EQ(fails.status(), absl::DataLossError("of the caller"));
  Write(from_, 5);
  ASSERT_TRUE(stream_.Copy(to_, from_, kBytes).ok());
  EXPECT_EQ(Read(), 5);
}

TEST_F(RuntimeTest, ALaunchWithTooMuchSharedMemoryIsRefused) {
  const absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
  ASSERT_TRUE(stream.ok());
  cudaLaunchConfig_t config;
  config.dynamicSmemBytes = simt::kSharedBytes + 1;
  config.stream = stream->get();
  EXPECT_EQ(cudaLaunchKernelEx(
                &config, +[](int) {}, 1),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tandem
