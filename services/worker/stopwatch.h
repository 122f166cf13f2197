// Measures elapsed time.
#ifndef TANDEM_SERVICES_WORKER_STOPWATCH_H_
#define TANDEM_SERVICES_WORKER_STOPWATCH_H_

#include <chrono>

namespace tandem {

class Stopwatch {
 public:
  // Seconds since the stopwatch was made.
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Adds the seconds of its own life to `*total`.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double* total) : total_(total) {}
  ~ScopedSeconds() { *total_ += stopwatch_.seconds(); }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double* total_;
  Stopwatch stopwatch_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_STOPWATCH_H_
