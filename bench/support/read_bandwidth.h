// Measures the bandwidth of plain reads of this machine's memory. All work that is bound by reading
// weights is compared with it.
#ifndef TANDEM_BENCH_SUPPORT_READ_BANDWIDTH_H_
#define TANDEM_BENCH_SUPPORT_READ_BANDWIDTH_H_

#include <cstddef>

#include "kernels/thread_pool.h"

namespace tandem::bench {

// Reads a buffer that is far larger than the caches, on huge pages if the system grants them.
class ReadBandwidth {
 public:
  // Throws std::bad_alloc if the memory cannot be allocated.
  explicit ReadBandwidth(size_t bytes);
  ~ReadBandwidth();
  ReadBandwidth(const ReadBandwidth&) = delete;
  ReadBandwidth& operator=(const ReadBandwidth&) = delete;

  // Reads the buffer once with all threads of the pool. Returns bytes per second.
  double Measure(ThreadPool& pool) const;

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_READ_BANDWIDTH_H_
