#include "services/cli/doctor/memory_speed.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace tandem::cli {

namespace {

using Clock = std::chrono::steady_clock;

// memchr reads at the full speed of the machine, with the widest loads that the processor has. The
// bytes that it seeks are not there.
bool ReadAll(const char* bytes, size_t size) { return std::memchr(bytes, 1, size) == nullptr; }

}  // namespace

double MeasureReadBytesPerSecond(int num_threads, double seconds, size_t bytes_per_thread) {
  std::vector<std::unique_ptr<char[]>> buffers;
  for (int i = 0; i < num_threads; ++i) {
    buffers.emplace_back(new (std::nothrow) char[bytes_per_thread]);
    if (buffers.back() == nullptr) return 0;
  }
  double best = 0;
  std::atomic<bool> done = false;
  std::atomic<bool> intact = true;
  Clock::time_point pass_began;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  // Runs once per pass, when all threads have arrived. The first pass only touches the memory.
  int pass = 0;
  std::barrier arrived(num_threads, [&]() noexcept {
    const auto now = Clock::now();
    if (pass > 1) {
      const std::chrono::duration<double> took = now - pass_began;
      best = std::max(best, static_cast<double>(bytes_per_thread) * num_threads / took.count());
    }
    done = pass > 1 && now >= end;
    pass_began = now;
    ++pass;
  });
  std::vector<std::thread> threads;
  threads.reserve(buffers.size());
  for (const auto& buffer : buffers) {
    threads.emplace_back([&, bytes = buffer.get()] {
      std::memset(bytes, 0, bytes_per_thread);
      for (arrived.arrive_and_wait(); !done; arrived.arrive_and_wait()) {
        if (!ReadAll(bytes, bytes_per_thread)) intact = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return intact ? best : 0;
}

}  // namespace tandem::cli
