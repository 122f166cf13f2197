#include "bench/support/read_bandwidth.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>

namespace tandem::bench {
namespace {

// A chunk is large enough for long streams, and small enough that the threads end at almost the
// same time.
constexpr size_t kChunkBytes = 4 << 20;

uint64_t XorOf(const uint64_t* words, size_t count) {
  uint64_t lanes[32] = {};
  for (size_t i = 0; i < count; i += 32) {
    __builtin_prefetch(words + i + 512);
    __builtin_prefetch(words + i + 520);
    __builtin_prefetch(words + i + 528);
    __builtin_prefetch(words + i + 536);
    for (size_t j = 0; j < 32; ++j) lanes[j] ^= words[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all ^= lane;
  return all;
}

}  // namespace

ReadBandwidth::ReadBandwidth(size_t bytes) : bytes_(bytes / kChunkBytes * kChunkBytes) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) throw std::bad_alloc();
  madvise(data_, bytes_, MADV_HUGEPAGE);
  std::memset(data_, 1, bytes_);
}

ReadBandwidth::~ReadBandwidth() { munmap(data_, bytes_); }

double ReadBandwidth::Measure(ThreadPool& pool) const {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<uint64_t> sink{0};
  pool.ParallelFor(static_cast<int64_t>(bytes_ / kChunkBytes), [&](int64_t chunk) {
    constexpr size_t kWords = kChunkBytes / sizeof(uint64_t);
    sink ^=
        XorOf(static_cast<const uint64_t*>(data_) + static_cast<size_t>(chunk) * kWords, kWords);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(bytes_) / seconds.count();
}

}  // namespace tandem::bench
