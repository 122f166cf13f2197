// Starts the workers and the router, keeps them running, stops them in order.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SUPERVISOR_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SUPERVISOR_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/cli/supervisor/child_process.h"
#include "services/cli/supervisor/worker_watch.h"

namespace tandem::cli {

struct ChildSpec {
  std::string name;  // in messages and before its log lines
  std::vector<std::string>
      command;  // the executable and its arguments; `--listen ADDRESS` is added
  std::string
      listen;  // after the first start: the address that the child reported, for its next lives
  // Serving goes on without it: when it keeps dying it is tried again now and then, and nothing
  // else stops.
  bool optional = false;
  std::chrono::milliseconds stop_timeout{5000};  // from SIGTERM to SIGKILL
};

struct RestartPolicy {
  // A child fails quickly when it dies before it is ready or within this time after.
  std::chrono::milliseconds quick_life{1000};
  int max_quick_failures = 5;  // in a row: then it is given up
  // Before a child that failed quickly once starts again; doubles with each further failure. One
  // that lived longer starts again at once.
  std::chrono::milliseconds first_delay{100};
  std::chrono::milliseconds max_delay{5000};
  std::chrono::milliseconds given_up_delay{
      30000};  // between tries of an optional child that was given up
  std::chrono::milliseconds start_timeout{600000};  // to the line `ready: ADDRESS`
};

struct SupervisorOptions {
  std::vector<ChildSpec> workers;  // started together
  ChildSpec router;                // started when all workers are ready
  RestartPolicy restart;
  // A worker that serves and gives no sign of life for so long is killed, and started again; 0:
  // never. Workers answer pings where they say that they listen.
  double heartbeat_timeout_seconds = 0;
};

struct SupervisorEvents {
  // Once, when the router serves for the first time.
  std::function<void(const std::string& address)> ready;
  // Once, the last call: no child is left. OK after Stop; else why the supervisor stopped by
  // itself.
  std::function<void(const absl::Status& status)> stopped;
  // A line that a child wrote, or that the supervisor has to say (`name` is "tandem").
  std::function<void(const std::string& name, const std::string& line)> log;
};

// A child says that it serves by one line `ready: ADDRESS` on its standard output.
//
// 1. The first start is strict: a child that fails before the router ever served stops everything,
//    because that is a wrong path or a broken file, and trying again will not mend it.
// 2. Later a child that dies is started again under the same address; its peers reconnect by
//    themselves. Five quick failures in a row stop everything, unless the child is optional.
// 3. A worker that hangs is killed, which makes it one that died. The router alone could give its
//    sessions up, but not bring it back.
// 4. Stop: the router first (it drains), then the workers, last first; each has ended before the
//    next is told to.
//
// Not thread-safe: call it on the io_context's thread. It must outlive the io_context's run; its
// destructor kills what still runs.
class Supervisor {
 public:
  Supervisor(boost::asio::io_context& io, SupervisorOptions options, SupervisorEvents events);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void Start();
  void Stop();
  // For those who cannot wait: SIGKILL to all, no order. `stopped` still comes.
  void Kill();

 private:
  struct Child {
    Child(boost::asio::io_context& io, ChildSpec child_spec)
        : spec(std::move(child_spec)), timer(io) {}

    ChildSpec spec;
    std::shared_ptr<ChildProcess> process;  // null: not running
    std::unique_ptr<WorkerWatch> watch;     // of a worker that is ready
    boost::asio::steady_timer timer;  // of starting, of the delay before a restart or of stopping
    uint64_t timer_number = 0;  // a timer that went off too late to be cancelled is told by it
    bool ready = false;
    std::chrono::steady_clock::time_point ready_since;
    int quick_failures = 0;
    bool told_to_stop = false;
  };

  void StartChild(Child& child);
  void OnOutput(Child& child, const std::string& line);
  void OnReady(Child& child, const std::string& address);
  void OnHung(Child& child, const std::string& why);
  void OnExit(Child& child, int wait_status);
  void Restart(Child& child, const std::string& what_happened);
  void After(Child& child, std::chrono::milliseconds delay, std::function<void()> then);
  void CancelTimer(Child& child);
  void RemoveSocket(const Child& child) const;
  void Fail(const absl::Status& status);
  void StopNext();
  void Say(const std::string& line) const { events_.log("tandem", line); }
  Child& router() { return children_.back(); }

  boost::asio::io_context& io_;
  RestartPolicy restart_;
  double heartbeat_timeout_seconds_;
  SupervisorEvents events_;
  std::deque<Child> children_;  // the workers, then the router; stopped from the back
  bool served_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  absl::Status result_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SUPERVISOR_H_
