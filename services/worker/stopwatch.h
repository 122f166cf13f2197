// Seconds since it was made.
#ifndef TANDEM_SERVICES_WORKER_STOPWATCH_H_
#define TANDEM_SERVICES_WORKER_STOPWATCH_H_

#include <chrono>

namespace tandem {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_STOPWATCH_H_
