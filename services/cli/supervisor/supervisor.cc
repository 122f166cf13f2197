#include "services/cli/supervisor/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/start_line.h"
#include "common/status.h"
#include "services/cli/client/listen_address.h"

namespace tandem::cli {

namespace {

// Returns an address by which this machine reaches a child that listens on all of its addresses.
std::string OnThisMachine(const std::string& address) {
  for (const auto& [everywhere, here] :
       {std::pair{"0.0.0.0:", "127.0.0.1:"}, std::pair{"[::]:", "[::1]:"}}) {
    if (address.starts_with(everywhere)) {
      return here + address.substr(std::string_view(everywhere).size());
    }
  }
  return address;
}

std::string Milliseconds(std::chrono::milliseconds duration) {
  return std::to_string(duration.count()) + " ms";
}

}  // namespace

Supervisor::Supervisor(boost::asio::io_context& io, SupervisorOptions options,
                       SupervisorEvents events)
    : io_(io),
      restart_(options.restart),
      heartbeat_timeout_seconds_(options.heartbeat_timeout_seconds),
      events_(std::move(events)) {
  for (ChildSpec& worker : options.workers) {
    children_.emplace_back(io, std::move(worker), Role::kWorker);
  }
  children_.emplace_back(io, std::move(options.router), Role::kRouter);
  if (options.gateway.has_value()) {
    children_.emplace_back(io, *std::move(options.gateway), Role::kGateway);
  }
}

Supervisor::Child* Supervisor::Find(Role role) {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [role](const Child& child) { return child.role == role; });
  return found == children_.end() ? nullptr : &*found;
}

void Supervisor::Start() {
  if (Find(Role::kWorker) == nullptr) StartChild(router());
  for (Child& child : children_) {
    if (child.role == Role::kWorker && !stopping_) StartChild(child);
  }
}

void Supervisor::StartChild(Child& child) {
  RemoveSocket(child);  // removes the socket of the child's former life
  std::vector<std::string> command = child.spec.command;
  command.insert(command.end(), {"--listen", child.spec.listen});
  if (child.role == Role::kGateway) {
    command.insert(command.end(), {"--connect", OnThisMachine(router().spec.listen)});
  }
  if (!served_) {
    command.insert(command.end(), child.spec.first_start_arguments.begin(),
                   child.spec.first_start_arguments.end());
  }
  child.ready = false;
  child.refusal.clear();
  auto process = ChildProcess::Start(
      io_, command,
      {.standard_output = [this, &child](const std::string& line) { OnOutput(child, line); },
       .standard_error = [this,
                          &child](const std::string& line) { events_.log(child.spec.name, line); },
       .exited = [this, &child](int status) { OnExit(child, status); }});
  if (!process.ok()) {
    Fail(process.status());
    return;
  }
  child.process = *process;
  After(child, restart_.start_timeout, [this, &child] {
    Say(child.spec.name + " was not ready within " + Milliseconds(restart_.start_timeout));
    child.process->Kill();
  });
}

void Supervisor::OnOutput(Child& child, const std::string& line) {
  const std::string_view serves = child.role == Role::kGateway ? kHttpPrefix : kReadyPrefix;
  if (!child.ready && line.starts_with(serves)) {
    OnReady(child, line.substr(serves.size()));
  } else if (!child.ready && line.starts_with(kRefusedPrefix)) {
    child.refusal = line.substr(kRefusedPrefix.size());
  } else {
    events_.log(child.spec.name, line);
  }
}

void Supervisor::OnReady(Child& child, const std::string& address) {
  if (stopping_) return;
  CancelTimer(child);
  child.ready = true;
  child.ready_since = std::chrono::steady_clock::now();
  child.spec.listen = address;
  if (heartbeat_timeout_seconds_ > 0 && child.role == Role::kWorker) {
    child.watch = std::make_unique<WorkerWatch>(
        io_, address, heartbeat_timeout_seconds_,
        [this, &child](const std::string& why) { OnHung(child, why); });
  }
  if (served_) {
    Say(child.spec.name + " is back");
    return;
  }
  if (&child == &children_.back()) return OnServing();
  if (child.role == Role::kRouter) return StartChild(children_.back());
  const bool workers_ready = std::all_of(children_.begin(), children_.end(), [](const Child& c) {
    return c.ready || c.role != Role::kWorker;
  });
  if (workers_ready && router().process == nullptr) StartChild(router());
}

void Supervisor::OnServing() {
  served_ = true;
  events_.ready(router().spec.listen);
  const Child* const gateway = Find(Role::kGateway);
  if (gateway != nullptr && events_.http != nullptr) events_.http(gateway->spec.listen);
}

void Supervisor::OnHung(Child& child, const std::string& why) {
  Say(child.spec.name + " hangs: it " + why + ", and is killed");
  child.process->Kill();
}

void Supervisor::OnExit(Child& child, int wait_status) {
  child.process.reset();
  child.watch.reset();
  CancelTimer(child);
  RemoveSocket(child);
  if (stopping_) {
    StopNext();
    return;
  }
  if (!served_ && !child.refusal.empty()) {
    Fail(FailedPrecondition(child.refusal));
    return;
  }
  const std::string what_happened =
      child.spec.name + " " +
      (child.refusal.empty() ? DescribeExit(wait_status) : "does not start: " + child.refusal);
  if (!served_) {
    Fail(Unavailable(what_happened +
                     (child.ready ? " before the others were ready" : " before it was ready")));
    return;
  }
  Restart(child, what_happened);
}

void Supervisor::Restart(Child& child, const std::string& what_happened) {
  const bool quick =
      !child.ready || std::chrono::steady_clock::now() - child.ready_since < restart_.quick_life;
  child.quick_failures = quick ? child.quick_failures + 1 : 0;
  child.ready = false;
  const bool give_up = child.quick_failures >= restart_.max_quick_failures;
  const std::string failures = "; it failed " + std::to_string(child.quick_failures) +
                               " times in a row, each within " + Milliseconds(restart_.quick_life) +
                               " of its start: ";
  if (give_up && !child.spec.optional) {
    Fail(Unavailable(what_happened + failures + "giving up (its own last lines say why)"));
    return;
  }
  std::chrono::milliseconds delay{0};
  if (give_up) {
    delay = restart_.given_up_delay;
  } else if (child.quick_failures > 0) {
    delay = std::min(restart_.first_delay * (1 << (child.quick_failures - 1)), restart_.max_delay);
  }
  After(child, delay, [this, &child] { StartChild(child); });
  if (give_up) {
    Say(what_happened + failures + "serving goes on without it, next try in " +
        Milliseconds(delay));
  } else {
    Say(what_happened + "; starting it again" +
        (delay.count() > 0 ? " in " + Milliseconds(delay) : ""));
  }
}

void Supervisor::After(Child& child, std::chrono::milliseconds delay, std::function<void()> then) {
  const uint64_t number = ++child.timer_number;
  child.timer.expires_after(delay);
  child.timer.async_wait([&child, number, then = std::move(then)](const auto& error) {
    if (!error && number == child.timer_number) then();
  });
}

void Supervisor::CancelTimer(Child& child) {
  ++child.timer_number;
  child.timer.cancel();
}

void Supervisor::RemoveSocket(const Child& child) const {
  if (child.spec.listen.rfind(kUnixPrefix, 0) != 0) return;
  const std::filesystem::path path = child.spec.listen.substr(sizeof(kUnixPrefix) - 1);
  std::error_code ignored;
  if (std::filesystem::is_socket(path, ignored)) std::filesystem::remove(path, ignored);
}

void Supervisor::Fail(const absl::Status& status) {
  if (result_.ok()) result_ = status;
  Stop();
}

void Supervisor::Stop() {
  if (stopping_) return;
  stopping_ = true;
  for (Child& child : children_) {
    CancelTimer(child);
    child.watch.reset();
  }
  // Stopping begins later, because the caller may still use the child that caused the stop.
  boost::asio::post(io_, [this] { StopNext(); });
}

void Supervisor::Kill() {
  Stop();
  for (Child& child : children_) {
    if (child.process != nullptr) child.process->Kill();
  }
}

void Supervisor::StopNext() {
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (child->process == nullptr) continue;
    if (child->told_to_stop) return;  // its exit calls again
    child->told_to_stop = true;
    child->process->Signal(SIGTERM);
    After(*child, child->spec.stop_timeout, [this, &stopping = *child] {
      Say(stopping.spec.name + " did not end within " + Milliseconds(stopping.spec.stop_timeout) +
          " of SIGTERM and is killed");
      stopping.process->Kill();
    });
    return;
  }
  if (std::exchange(stopped_, true)) return;
  events_.stopped(result_);
}

}  // namespace tandem::cli
