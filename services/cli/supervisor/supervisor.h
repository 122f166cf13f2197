// Starts the workers and the router, keeps them running, and stops them in order.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SUPERVISOR_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SUPERVISOR_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/cli/supervisor/child_process.h"
#include "services/cli/supervisor/worker_watch.h"

namespace tandem::cli {

struct ChildSpec {
  std::string name;                  // used in messages and before the child's log lines
  std::vector<std::string> command;  // executable and arguments; `--listen ADDRESS` is added
  std::vector<std::string> first_start_arguments;  // added as long as the server has never served
  // The address that the child reported at its first start. Its later lives listen there again.
  std::string listen;
  // If true, serving goes on without this child. After too many quick failures it is tried again
  // from time to time, and nothing else stops.
  bool optional = false;
  std::chrono::milliseconds stop_timeout{5000};  // time between SIGTERM and SIGKILL
};

struct RestartPolicy {
  // A child fails quickly if it dies before it is ready or within this time after.
  std::chrono::milliseconds quick_life{1000};
  int max_quick_failures = 5;  // consecutive quick failures after which the child is given up
  // Delay before a child starts again after its first quick failure. Each further quick failure
  // doubles the delay. A child that lived longer starts again at once.
  std::chrono::milliseconds first_delay{100};
  std::chrono::milliseconds max_delay{5000};
  // Time between tries of an optional child that was given up.
  std::chrono::milliseconds given_up_delay{30000};
  std::chrono::milliseconds start_timeout{600000};  // time until the line `ready: ADDRESS`
};

struct SupervisorOptions {
  std::vector<ChildSpec> workers;  // started at the same time
  ChildSpec router;                // started when all workers are ready
  // Started when the router is ready, with `--connect` and the router's address. None: there is no
  // gateway.
  std::optional<ChildSpec> gateway = std::nullopt;
  RestartPolicy restart;
  // A worker that serves and shows no sign of life for this time is killed and started again. 0:
  // never. A worker answers pings at the address that it listens on.
  double heartbeat_timeout_seconds = 0;
};

struct SupervisorEvents {
  // Called once, when the router, and the gateway if there is one, serve for the first time.
  std::function<void(const std::string& address)> ready;
  // Called once after `ready`, if there is a gateway, with the gateway's address.
  std::function<void(const std::string& address)> http = {};
  // Called once, as the last callback: no child is left. The status is OK after Stop. Otherwise it
  // says why the supervisor stopped by itself. FAILED_PRECONDITION: a child refused to start, in
  // its own words, so that its log lines say nothing more.
  std::function<void(const absl::Status& status)> stopped;
  // Gets each line of a child, and each line of the supervisor itself (`name` is "tandem").
  std::function<void(const std::string& name, const std::string& line)> log;
};

// A child reports that it serves by one line `ready: ADDRESS` on its standard output (the gateway:
// `http: ADDRESS`), and that it refuses to start by one line `refused: WHY` (common/start_line.h).
//
// 1. The first start is strict. A child that fails before the router has ever served stops
// everything: the cause is a wrong path or a broken file, and another try would not help.
// 2. Later, a child that dies is started again with the same address, and its peers reconnect. Five
// consecutive quick failures stop everything, unless the child is optional.
// 3. A worker that hangs is killed, and then counts as dead. The router alone could only give up
// its sessions with the worker, and could not bring it back.
// 4. Stop ends the gateway first, then the router. Both drain. Then it ends the workers, the last
// one first. Each child has ended before the next one is told to end.
//
// Not thread-safe: call it on the io_context's thread. The supervisor must outlive the io_context's
// run. Its destructor kills the children that still run.
class Supervisor {
 public:
  Supervisor(boost::asio::io_context& io, SupervisorOptions options, SupervisorEvents events);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void Start();
  void Stop();
  // Sends SIGKILL to all children, in no order, for callers that cannot wait. `stopped` is still
  // called.
  void Kill();

 private:
  enum class Role { kWorker, kRouter, kGateway };
  struct Child {
    Child(boost::asio::io_context& io, ChildSpec child_spec, Role child_role)
        : spec(std::move(child_spec)), role(child_role), timer(io) {}

    ChildSpec spec;
    const Role role;
    std::shared_ptr<ChildProcess> process;  // null if the child is not running
    std::unique_ptr<WorkerWatch> watch;     // set while a worker is ready
    // Timer of the start, of the delay before a restart, or of the stop.
    boost::asio::steady_timer timer;
    uint64_t timer_number = 0;  // identifies a timer that fired too late to be canceled
    bool ready = false;
    std::string refusal;  // why it did not start, in its own words; empty: it did not say
    std::chrono::steady_clock::time_point ready_since;
    int quick_failures = 0;
    bool told_to_stop = false;
  };

  void StartChild(Child& child);
  void OnOutput(Child& child, const std::string& line);
  void OnReady(Child& child, const std::string& address);
  // Called when the last child has started for the first time.
  void OnServing();
  void OnHung(Child& child, const std::string& why);
  void OnExit(Child& child, int wait_status);
  void Restart(Child& child, const std::string& what_happened);
  void After(Child& child, std::chrono::milliseconds delay, std::function<void()> then);
  void CancelTimer(Child& child);
  void RemoveSocket(const Child& child) const;
  void Fail(const absl::Status& status);
  void StopNext();
  void Say(const std::string& line) const { events_.log("tandem", line); }
  // Null: there is none.
  Child* Find(Role role);
  Child& router() { return *Find(Role::kRouter); }

  boost::asio::io_context& io_;
  RestartPolicy restart_;
  double heartbeat_timeout_seconds_;
  SupervisorEvents events_;
  // The workers, then the router, then the gateway. They are stopped from the back.
  std::deque<Child> children_;
  bool served_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  absl::Status result_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SUPERVISOR_H_
