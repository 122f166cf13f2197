// What the memory of this machine gives to plain reading: the yardstick for everything that is
// bound by weights.
#ifndef TANDEM_BENCH_SUPPORT_READ_BANDWIDTH_H_
#define TANDEM_BENCH_SUPPORT_READ_BANDWIDTH_H_

#include <cstddef>

#include "kernels/thread_pool.h"

namespace tandem::bench {

// A buffer far larger than the caches, on huge pages where the system grants them.
class ReadBandwidth {
 public:
  // Throws std::bad_alloc when `bytes` cannot be had.
  explicit ReadBandwidth(size_t bytes);
  ~ReadBandwidth();
  ReadBandwidth(const ReadBandwidth&) = delete;
  ReadBandwidth& operator=(const ReadBandwidth&) = delete;

  // Reads the buffer once with all threads of the pool; bytes per second.
  double Measure(ThreadPool& pool) const;

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_READ_BANDWIDTH_H_
