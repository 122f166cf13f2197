// SIGTERM and SIGINT as an orderly call.
#ifndef TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_
#define TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_

#include <functional>
#include <mutex>
#include <thread>

#include "common/ring/unique_fd.h"

namespace tandem {

// Blocks both signals in the calling thread (make it before any other thread) and waits for them in
// a thread of its own.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // What a signal calls, in a thread of its own. Before it is set a signal ends the process
  // with code 0: there is nothing to put away yet. When the process has not ended a second after
  // the signal (a long forward pass), it is ended with code 0 all the same, after `before_exit`.
  void Set(std::function<void()> stop, std::function<void()> before_exit);

 private:
  void Run();

  std::mutex mutex_;
  std::function<void()> stop_;         // guarded by mutex_
  std::function<void()> before_exit_;  // guarded by mutex_
  UniqueFd signals_;                   // a signalfd
  UniqueFd done_;                      // an eventfd: the destructor's
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_
