// Turns SIGTERM and SIGINT into an orderly stop.
#ifndef TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_
#define TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "common/ring/unique_fd.h"

namespace tandem {

// Blocks both signals in the calling thread, and waits for them in a thread of its own. To be made
// before any other thread starts.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  struct Actions {
    // Finishes the work under way, then ends the server. Runs in a thread of its own.
    std::function<void()> stop;
    // `hurry` makes `stop` return soon. It is called after `patience`, or at a second signal.
    std::chrono::milliseconds patience{0};
    std::function<void()> hurry;
    // If the process has not ended a second later, for example because of a long forward pass, this
    // function is called and then the process ends with code 0.
    std::function<void()> before_exit;
  };
  // Sets what a signal does. Before that, a signal ends the process with code 0, because there is
  // nothing to clean up yet.
  void Set(Actions actions);

 private:
  void Run();

  std::mutex mutex_;
  Actions actions_;   // guarded by mutex_
  UniqueFd signals_;  // a signalfd
  UniqueFd done_;     // an eventfd that the destructor writes to
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_STOP_SIGNAL_H_
