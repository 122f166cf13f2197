// SIGTERM and SIGINT as an orderly call.
#ifndef TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_
#define TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_

#include <chrono>
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

  struct Actions {
    // In a thread of its own: ends what is under way, then the server.
    std::function<void()> stop;
    // How long that may take, and what is called then, or at a second signal: `stop` must hurry.
    std::chrono::milliseconds patience{0};
    std::function<void()> hurry;
    // When the process has not ended a second later (a long forward pass) it is ended with code 0
    // all the same, after this.
    std::function<void()> before_exit;
  };
  // What a signal does. Before it is set one ends the process with code 0: there is nothing to put
  // away yet.
  void Set(Actions actions);

 private:
  void Run();

  std::mutex mutex_;
  Actions actions_;   // guarded by mutex_
  UniqueFd signals_;  // a signalfd
  UniqueFd done_;     // an eventfd: the destructor's
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_
