// Tests the shim itself: its results, and the errors that it must detect.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <type_traits>
#include <vector>

namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

class SimtTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  template <typename... Parameters>
  void Run(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
           std::type_identity_t<Parameters>... arguments) {
    cudaLaunchConfig_t config;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
};

void WritePlace(int* out) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      static_cast<int>(1000 * block + thread);
}

TEST_F(SimtTest, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> out(6 * 24, -1);
  Run(WritePlace, dim3(3, 2), dim3(4, 3, 2), 0, out.data());
  for (int i = 0; i < 6 * 24; ++i) EXPECT_EQ(out[i], 1000 * (i / 24) + i % 24);
}

void Reverse(const int* in, int* out) {
  int* const shared = static_cast<int*>(simt::SharedMemory());
  shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST_F(SimtTest, ABarrierSeparatesWritesFromReadsInEveryOrderOfThreads) {
  std::vector<int> in(200);
  for (int i = 0; i < 200; ++i) in[i] = i;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    simt::SetSeed(seed);
    std::vector<int> out(200);
    Run(Reverse, dim3(1), dim3(200), 200 * sizeof(int), in.data(), out.data());
    for (int i = 0; i < 200; ++i) ASSERT_EQ(out[i], 199 - i);
  }
}

void ReverseWithoutBarrier(const int* in, int* out) {
  int* const shared = static_cast<int*>(simt::SharedMemory());
  shared[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST_F(SimtTest, SharedMemoryThatIsReadTooEarlyIsPoison) {
  const std::vector<int> in(64, 5);
  std::vector<int> out(64);
  Run(ReverseWithoutBarrier, dim3(1), dim3(64), 64 * sizeof(int), in.data(), out.data());
  EXPECT_EQ(std::count(out.begin(), out.end(), -1), 32) << "the first of each pair to run";
}

void Warps(int* sums, unsigned* ballots, int* shifted) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = lane;
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAll, sum, lanes);
  sums[threadIdx.x] = sum;
  ballots[threadIdx.x] = __ballot_sync(kAll, lane % 3 == 0);
  shifted[threadIdx.x] = __shfl_down_sync(kAll, lane, 5);
  // Half of a warp may meet without the other half.
  if (lane < 16) sums[threadIdx.x] += __shfl_sync(0xFFFFu, lane, 7);
}

TEST_F(SimtTest, LanesOfAWarpExchangeValues) {
  std::vector<int> sums(64), shifted(64);
  std::vector<unsigned> ballots(64);
  Run(Warps, dim3(1), dim3(64), 0, sums.data(), ballots.data(), shifted.data());
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(sums[i], 496 + (i % 32 < 16 ? 7 : 0));
    EXPECT_EQ(ballots[i], 0x49249249u);
    EXPECT_EQ(shifted[i], i % 32 + 5 < 32 ? i % 32 + 5 : i % 32);
  }
}

// A thread of the second warp writes what the lanes of the first one read, without a barrier.
void ReadWhatAnotherWarpWrites(volatile int* word, int* seen) {
  if (threadIdx.x == 40) *word = 1;
  seen[threadIdx.x] = *word;
}

TEST_F(SimtTest, OtherWarpsRunBeforeAfterAndBetweenTheLanesOfAWarp) {
  std::set<int> counts;
  for (int i = 0; i < 300; ++i) {
    int word = 0;
    std::vector<int> seen(64);
    Run(ReadWhatAnotherWarpWrites, dim3(1), dim3(64), 0, &word, seen.data());
    counts.insert(static_cast<int>(std::count(seen.begin(), seen.begin() + 32, 1)));
  }
  EXPECT_EQ(*counts.begin(), 0);
  EXPECT_EQ(*counts.rbegin(), 32);
  EXPECT_GT(counts.size(), 10u) << "lanes of one warp see different values";
}

template <typename T, typename Combine>
void BothButterflies(const T* in, T* at_once, T* by_shuffles) {
  const T value = in[threadIdx.x];
  at_once[threadIdx.x] = simt::Butterfly(value, Combine());
  T mine = value;
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine = Combine()(mine, __shfl_xor_sync(kAll, mine, lanes));
  }
  by_shuffles[threadIdx.x] = mine;
}

// The difference is not commutative, so each lane has a result of its own.
TEST_F(SimtTest, AButterflyAtOnceGivesTheBitsOfShuffles) {
  const auto check = [&]<typename T, typename Combine>(T /*type*/, Combine /*combine*/) {
    std::vector<T> in(96), at_once(96), by_shuffles(96);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(i * i % 37) / static_cast<T>(7);
    Run(BothButterflies<T, Combine>, dim3(1), dim3(96), 0, in.data(), at_once.data(),
        by_shuffles.data());
    EXPECT_EQ(at_once, by_shuffles);
    EXPECT_NE(at_once, in);
  };
  check(0.0f, std::plus<float>());
  check(0.0f, std::minus<float>());
  check(0.0, std::plus<double>());
  check(uint64_t{0}, std::minus<uint64_t>());
}

void Count(int* counter, float* largest) {
  atomicAdd(counter, 2);
  atomicMax(largest, static_cast<float>(threadIdx.x));
}

TEST_F(SimtTest, AtomicsLoseNothing) {
  int counter = 0;
  float largest = -1;
  Run(Count, dim3(4), dim3(50), 0, &counter, &largest);
  EXPECT_EQ(counter, 400);
  EXPECT_EQ(largest, 49);
}

void DivergentBarrier() {
  if (threadIdx.x < 10) __syncthreads();
}
void MissingLane() {
  if (threadIdx.x != 3) __shfl_sync(kAll, 1, 0);
}
void DifferentOperations() {
  if (threadIdx.x < 16) {
    __shfl_sync(kAll, 1, 0);
  } else {
    __syncwarp();
  }
}
void NotInItsMask() { __shfl_sync(1u, 1, 0); }

using SimtDeathTest = SimtTest;

TEST_F(SimtDeathTest, ABarrierThatSomeThreadsEndedWithoutIsFatal) {
  EXPECT_DEATH(Run(DivergentBarrier, dim3(1), dim3(64), 0),
               "10 threads are at a barrier that 54 ended without");
}
TEST_F(SimtDeathTest, AWarpOperationThatALaneNeverReachesIsFatal) {
  EXPECT_DEATH(Run(MissingLane, dim3(1), dim3(32), 0), "never come|a lane that has ended");
}
TEST_F(SimtDeathTest, LanesThatMeetInDifferentOperationsAreFatal) {
  EXPECT_DEATH(Run(DifferentOperations, dim3(1), dim3(32), 0), "in another warp operation");
}
TEST_F(SimtDeathTest, ALaneOutsideOfItsOwnMaskIsFatal) {
  EXPECT_DEATH(Run(NotInItsMask, dim3(1), dim3(32), 0), "its lane is not in the mask");
}
TEST_F(SimtDeathTest, DeviceCodeOutsideOfAKernelIsFatal) {
  EXPECT_DEATH(__syncthreads(), "outside of a kernel");
}

TEST_F(SimtTest, NothingIsDoneBeforeSomethingWaits) {
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 4), cudaSuccess);
  float host = 3;
  float back = 0;
  ASSERT_EQ(cudaMemcpyAsync(memory, &host, 4, cudaMemcpyDefault, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&back, memory, 4, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(back, 0);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(back, 3);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(SimtTest, DeviceMemoryBeginsAsNan) {
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 4), cudaSuccess);
  float back = 0;
  ASSERT_EQ(cudaMemcpyAsync(&back, memory, 4, cudaMemcpyDefault, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(std::isnan(back));
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(SimtTest, WaitingForAnEventDoesTheWorkBeforeItAndNothingIfItWasNotRecorded) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  int order[2] = {0, 0};
  int one = 1;
  int two = 2;
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);  // never recorded: waits for nothing
  ASSERT_EQ(cudaMemcpyAsync(&order[0], &one, 4, cudaMemcpyDefault, other), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&order[1], &two, 4, cudaMemcpyDefault, other), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(order[0], 1);
  EXPECT_EQ(order[1], 0) << "only the work before the event";
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// a [16, 16], b [16, 8], d [16, 8], row-major, with whole numbers that BF16 can hold.
void MultiplyMatrices(const float* a, const float* b, float* d) {
  const unsigned g = threadIdx.x / 4;
  const unsigned t = threadIdx.x % 4;
  const auto pair = [](float first, float second) {
    return __float_as_uint(first) >> 16 | (__float_as_uint(second) & 0xFFFF0000u);
  };
  const auto of_a = [&](unsigned row, unsigned k) {
    return pair(a[row * 16 + k], a[row * 16 + k + 1]);
  };
  const auto of_b = [&](unsigned k) { return pair(b[k * 8 + g], b[(k + 1) * 8 + g]); };
  const uint32_t words_of_a[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8),
                                  of_a(g + 8, 2 * t + 8)};
  const uint32_t words_of_b[2] = {of_b(2 * t), of_b(2 * t + 8)};
  float mine[4] = {d[g * 8 + 2 * t], d[g * 8 + 2 * t + 1], d[(g + 8) * 8 + 2 * t],
                   d[(g + 8) * 8 + 2 * t + 1]};
  simt::MultiplyFragments(words_of_a, words_of_b, mine);
  for (unsigned i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = mine[i];
}

TEST_F(SimtTest, AWarpMultipliesMatrices) {
  std::vector<float> a(16 * 16);
  std::vector<float> b(16 * 8);
  std::vector<float> d(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 61) - 30;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 11 % 53) - 26;
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<float>(i);
  std::vector<float> want = d;
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      for (size_t k = 0; k < 16; ++k) want[row * 8 + column] += a[row * 16 + k] * b[k * 8 + column];
    }
  }
  Run(MultiplyMatrices, 1, 32, 0, a.data(), b.data(), d.data());
  EXPECT_EQ(d, want);
}

// Writes the words that each lane gets of four matrices, whose rows are in shared memory.
void LoadFourMatrices(bool transposed, uint32_t* words) {
  auto* const shared = static_cast<uint16_t*>(simt::SharedMemory());
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 8; ++i) shared[lane * 8 + i] = static_cast<uint16_t>(lane * 8 + i);
  __syncwarp();
  uint32_t mine[4];
  simt::LoadMatrices(shared + lane * 8, transposed, mine);
  for (unsigned i = 0; i < 4; ++i) words[lane * 4 + i] = mine[i];
}

TEST_F(SimtTest, AWarpLoadsMatrices) {
  for (const bool transposed : {false, true}) {
    std::vector<uint32_t> words(32 * 4);
    Run(LoadFourMatrices, 1, 32, 32 * 16, transposed, words.data());
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        const uint32_t g = lane / 4;
        const uint32_t t = lane % 4;
        const uint32_t first = matrix * 64 + (transposed ? 2 * t * 8 + g : g * 8 + 2 * t);
        const uint32_t second = first + (transposed ? 8 : 1);
        EXPECT_EQ(words[lane * 4 + matrix], first | second << 16) << lane;
      }
    }
  }
}

// Writes what shared memory holds before and after each wait.
void CopyInGroups(const float* from, float* seen) {
  auto* const shared = static_cast<float*>(simt::SharedMemory());
  shared[0] = -1;
  shared[1] = -1;
  simt::CopyLater(shared, from, sizeof(float));
  simt::EndCopyGroup();
  simt::CopyLater(shared + 1, nullptr, sizeof(float));
  simt::EndCopyGroup();
  seen[0] = shared[0];
  simt::WaitForCopyGroups(1);
  seen[1] = shared[0];
  seen[2] = shared[1];
  simt::WaitForCopyGroups(0);
  seen[3] = shared[1];
}

TEST_F(SimtTest, ACopyIsDoneAtOnceOrWhenItsGroupIsWaitedFor) {
  const float from = 5;
  std::set<std::vector<float>> all;
  for (int i = 0; i < 40; ++i) {
    std::vector<float> seen(4);
    Run(CopyInGroups, 1, 1, 2 * sizeof(float), &from, seen.data());
    all.insert(seen);
  }
  EXPECT_EQ(all, (std::set<std::vector<float>>{{-1, 5, -1, 0}, {5, 5, 0, 0}}));
}

TEST(HalfTest, WidensEveryPattern) {
  EXPECT_EQ(__half2float(__ushort_as_half(0x3C00)), 1.0f);
  EXPECT_EQ(__half2float(__ushort_as_half(0xC000)), -2.0f);
  EXPECT_EQ(__half2float(__ushort_as_half(0x0001)), 0x1p-24f);
  EXPECT_EQ(__half2float(__ushort_as_half(0x7BFF)), 65504.0f);
  EXPECT_EQ(__half2float(__ushort_as_half(0x7C00)), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(__half2float(__ushort_as_half(0x7E00))));
  for (unsigned bits = 0; bits < 0x7C00; ++bits) {
    ASSERT_EQ(__half_as_ushort(__float2half_rn(
                  __half2float(__ushort_as_half(static_cast<unsigned short>(bits))))),
              bits);
  }
  EXPECT_EQ(__half_as_ushort(__float2half_rn(1 + 0x1p-11f)), 0x3C00) << "a tie, to even";
  EXPECT_EQ(__half_as_ushort(__float2half_rn(1 + 3 * 0x1p-11f)), 0x3C02);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(70000.0f)), 0x7C00);
}

}  // namespace
