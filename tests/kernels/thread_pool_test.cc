#include "kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tandem {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, HasTheRequestedNumberOfThreads) {
  EXPECT_EQ(ThreadPool(GetParam()).num_threads(), GetParam());
}

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t num_tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
    pool.ParallelFor(num_tasks, [&](int64_t task) { ++runs.at(static_cast<size_t>(task)); });
    for (const std::atomic<int>& count : runs) ASSERT_EQ(count, 1) << num_tasks << " tasks";
  }
}

// Short jobs of changing size run one right after the other. The values that a task wrote are
// visible after ParallelFor without further synchronization. A helper that comes late never runs a
// task of a later job.
TEST_P(ThreadPoolTest, JobsDoNotMix) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> written;
  for (int64_t job = 0; job < 20000; ++job) {
    written.assign(static_cast<size_t>(2 + job % 5), -1);
    pool.ParallelFor(static_cast<int64_t>(written.size()), [&](int64_t task) {
      if (job % 8 == 0 && task == 0) std::this_thread::yield();  // lets the helpers in
      written.at(static_cast<size_t>(task)) = job;
    });
    for (const int64_t value : written) ASSERT_EQ(value, job);
  }
}

TEST_P(ThreadPoolTest, EndsWithAndWithoutUse) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    if (i % 2 == 0) pool.ParallelFor(4, [](int64_t) {});
  }
}

TEST(ThreadPoolConcurrencyTest, TasksRunAtTheSameTime) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  // Each task waits for the other two. The call ends only if three threads run at the same time.
  pool.ParallelFor(3, [&](int64_t) {
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 3);
}

// The state letter of a thread of this process, and its nanoseconds on a CPU.
struct ThreadUsage {
  char state;
  std::string on_cpu_ns;
};
ThreadUsage UsageOf(pid_t thread) {
  const std::string folder = "/proc/self/task/" + std::to_string(thread);
  std::ifstream stat(folder + "/stat");
  const std::string line((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  std::ifstream schedstat(folder + "/schedstat");
  ThreadUsage usage{line.at(line.rfind(')') + 2), ""};
  schedstat >> usage.on_cpu_ns;
  return usage;
}

TEST(ThreadPoolIdleTest, HelpersSleepWhenThereIsNothingToDo) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::vector<pid_t> threads(3);
  pool.ParallelFor(3, [&](int64_t task) {
    threads.at(static_cast<size_t>(task)) = gettid();
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });
  const std::set<pid_t> distinct(threads.begin(), threads.end());
  ASSERT_EQ(distinct.size(), 3U);
  for (const pid_t thread : distinct) {
    if (thread == gettid()) continue;
    // A pool that polls forever never sleeps for this long. The timeout of ctest then ends the
    // wait.
    const auto quiet = std::chrono::milliseconds(20);
    auto since = std::chrono::steady_clock::now();
    std::string on_cpu_ns;
    while (std::chrono::steady_clock::now() - since < quiet) {
      const ThreadUsage usage = UsageOf(thread);
      if (usage.state != 'S' || usage.on_cpu_ns != on_cpu_ns) {
        since = std::chrono::steady_clock::now();
        on_cpu_ns = usage.on_cpu_ns;
      }
    }
  }
  std::atomic<int> runs{0};
  pool.ParallelFor(100, [&](int64_t) { ++runs; });
  EXPECT_EQ(runs, 100) << "after waking up";
}

}  // namespace
}  // namespace tandem
