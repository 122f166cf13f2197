// The clock by which a process measures how long something takes.
#ifndef TANDEM_COMMON_MONOTONIC_SECONDS_H_
#define TANDEM_COMMON_MONOTONIC_SECONDS_H_

#include <chrono>

namespace tandem {

// Seconds since an arbitrary moment, the same one for the whole life of the process. Never goes
// back.
inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tandem

#endif  // TANDEM_COMMON_MONOTONIC_SECONDS_H_
