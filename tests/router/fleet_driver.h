// Runs a Fleet against toy worker pods, one message at a time, on a clock of its own.
#ifndef TANDEM_TESTS_ROUTER_FLEET_DRIVER_H_
#define TANDEM_TESTS_ROUTER_FLEET_DRIVER_H_

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/router/fleet/fleet.h"
#include "tests/router/engine_driver.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/router/toy_workers.h"

namespace tandem::testing {

// A verifier and its drafter.
struct ToyPod {
  ToyPod(const ToyModel& model, const ToyOptions& options)
      : drafter(model, options, &ring), verifier(model, options, &ring) {}

  ToyRing ring;
  ToyDrafter drafter;
  ToyVerifier verifier;
  bool alive = true;
  bool silent = false;  // dead, and nobody noticed yet
  v1::WatchPong pong;
  std::map<Worker, SessionId> sessions;
  std::deque<std::variant<SendToDrafter, SendToVerifier>> inbox;
};

class FleetDriver {
 public:
  explicit FleetDriver(EngineOptions options = {}, ToyModel toy = {},
                       EngineObserver* observer = NobodyObserves())
      : model(toy),
        tokenizer(ToyTokenizer::OfSize(static_cast<size_t>(toy.vocabulary_size))),
        fleet(options, &tokenizer, observer) {
    fleet.Start(now);
  }

  static PodSpec Spec(const std::string& name) { return {name, {name + "-draft"}}; }

  // Makes the pod, which is not in the list yet.
  ToyPod& Pod(const std::string& name) {
    auto& pod = pods[name];
    if (pod == nullptr) {
      ToyOptions options;
      options.vocabulary_size = static_cast<uint32_t>(model.vocabulary_size);
      options.fingerprint = tokenizer.FingerprintBytes();
      pod = std::make_unique<ToyPod>(model, options);
      pod->drafter.options.entries = tokenizer.entries();
    }
    return *pod;
  }

  // These are all pods that there are.
  void List(const std::vector<std::string>& names) {
    std::vector<PodSpec> specs;
    for (const std::string& name : names) {
      Pod(name);
      specs.push_back(Spec(name));
    }
    fleet.SetPods(specs, now);
    Execute();
    Settle();
  }

  void Settle() {
    while (Step()) {
    }
  }

  GenerationRequest Request(std::vector<int32_t> prompt, int max_tokens) const {
    return GreedyRequest(std::move(prompt), max_tokens);
  }

  CallId Send(GenerationRequest request) {
    const CallId call = ++last_call;
    if (request.request_id.empty()) request.request_id = "r" + std::to_string(call);
    fleet.OnRequest(call, std::move(request), now);
    Execute();
    return call;
  }
  void Cancel(CallId call) {
    fleet.OnCancel(call, now);
    calls[call].status = absl::CancelledError();
    Execute();
  }

  // Both workers die, with all that they held.
  void Kill(const std::string& name) {
    ToyPod& pod = Pod(name);
    pod.alive = false;
    pod.silent = false;
    pod.inbox.clear();
    pod.drafter.Reset();
    pod.verifier.Reset();
    pod.ring = ToyRing();
    pod.verifier.last_ring_epoch = 0;
    for (Worker worker : {Worker::kVerifier, Worker::kDrafter}) {
      const SessionId session = std::exchange(pod.sessions[worker], 0);
      if (session == 0) continue;
      fleet.OnSessionLost(worker, session, "killed", now);
      Execute();
    }
  }

  // The same, but the fleet is not told before Kill.
  void Silence(const std::string& name) {
    ToyPod& pod = Pod(name);
    pod.alive = false;
    pod.silent = true;
    pod.inbox.clear();
  }

  // What its verifier says of itself with every pong, and now.
  void ToldToStop(const std::string& name, bool told) {
    ToyPod& pod = Pod(name);
    pod.pong.set_draining(told);
    fleet.OnPong(Worker::kVerifier, pod.sessions[Worker::kVerifier], pod.pong, now);
    Execute();
  }

  // How many slots are open at the pod's verifier.
  size_t NumOpen(const std::string& name) { return Pod(name).verifier.slots.size(); }

  // Lets each pod answer one message; false: none has any.
  bool Step() {
    now += 0.0005;
    bool any = false;
    for (auto& [name, pod] : pods) {
      if (pod->inbox.empty()) continue;
      any = true;
      const auto message = std::move(pod->inbox.front());
      pod->inbox.pop_front();
      if (const auto* send = std::get_if<SendToVerifier>(&message)) {
        if (send->session != pod->sessions[Worker::kVerifier]) continue;
        std::optional<v1::VerifierReply> reply = pod->verifier.Handle(send->command);
        if (!reply.has_value()) continue;
        now += 0.002;
        fleet.OnVerifierReply(send->session, *reply, now);
        Execute();
      } else {
        const auto& draft = std::get<SendToDrafter>(message);
        if (draft.session != pod->sessions[Worker::kDrafter]) continue;
        for (v1::DraftReply& reply : pod->drafter.Handle(draft.command)) {
          now += 0.001;
          fleet.OnDraftReply(draft.session, reply, now);
          Execute();
        }
      }
    }
    return any;
  }

  // Until all calls have ended; where nothing can happen the clock goes on. False: it never ends.
  bool Run(const std::function<void(int step)>& before_step = {}) {
    for (int step = 0; step < 100000; ++step) {
      if (before_step) before_step(step);
      const bool nothing_under_way = std::all_of(
          pods.begin(), pods.end(), [](const auto& pod) { return pod.second->inbox.empty(); });
      if (fleet.idle() && nothing_under_way) return true;
      if (Step()) continue;
      if (!Wait()) return false;
    }
    return false;
  }

  // Until the next deadline. False: there is none.
  bool Wait() {
    const double deadline = fleet.NextDeadline();
    if (std::isinf(deadline)) return false;
    now = std::max(now, deadline);
    fleet.Tick(now);
    Execute();
    return true;
  }
  void WaitFor(double seconds) {
    for (const double until = now + seconds; now < until;) {
      if (!Step() && !Wait()) now = until;
    }
  }

  CallResult Generate(GenerationRequest request) {
    const CallId call = Send(std::move(request));
    Run();
    return calls[call];
  }

  void Execute() {
    for (EngineCommands commands = fleet.TakeCommands(); !commands.empty();
         commands = fleet.TakeCommands()) {
      for (EngineCommand& command : commands) ExecuteOne(command);
      fleet.OnCommandsSent(now);
    }
  }

  bool Logged(const std::string& part) const {
    return std::any_of(log.begin(), log.end(), [&](const LogLine& line) {
      return line.text.find(part) != std::string::npos;
    });
  }

  ToyModel model;
  ToyTokenizer tokenizer;
  Fleet fleet;
  double now = 100;
  std::map<std::string, std::unique_ptr<ToyPod>> pods;
  std::map<SessionId, ToyPod*> pod_of;
  std::map<CallId, CallResult> calls;
  std::vector<LogLine> log;
  std::optional<absl::Status> gave_up;
  CallId last_call = 0;

 private:
  void ExecuteOne(EngineCommand& command) {
    if (auto* open = std::get_if<OpenSession>(&command)) {
      const PodSpec* spec = fleet.PodOf(open->session);
      if (spec == nullptr) return;
      ToyPod& pod = Pod(spec->verifier);
      pod_of[open->session] = &pod;
      if (!pod.alive) {
        fleet.OnSessionLost(KindOf(open->peer), open->session, "connection refused", now);
        return;
      }
      pod.sessions[KindOf(open->peer)] = open->session;
      if (KindOf(open->peer) == Worker::kDrafter) {
        pod.drafter.Reset();
      } else {
        pod.verifier.Reset();
      }
    } else if (auto* close = std::get_if<CloseSession>(&command)) {
      ToyPod& pod = *pod_of[close->session];
      if (pod.sessions[close->worker] != close->session) return;
      pod.sessions[close->worker] = 0;
      if (close->worker == Worker::kDrafter) {
        pod.drafter.Reset();
      } else {
        pod.verifier.Reset();
      }
    } else if (auto* to_draft = std::get_if<SendToDrafter>(&command)) {
      ToyPod& pod = *pod_of[to_draft->session];
      if (!pod.silent && to_draft->session == pod.sessions[Worker::kDrafter]) {
        pod.inbox.emplace_back(std::move(*to_draft));
      }
    } else if (auto* to_target = std::get_if<SendToVerifier>(&command)) {
      ToyPod& pod = *pod_of[to_target->session];
      if (!pod.silent && to_target->session == pod.sessions[Worker::kVerifier]) {
        pod.inbox.emplace_back(std::move(*to_target));
      }
    } else if (auto* ping = std::get_if<SendPing>(&command)) {
      ToyPod& pod = *pod_of[ping->session];
      if (!pod.silent && ping->session == pod.sessions[ping->worker]) {
        fleet.OnPong(ping->worker, ping->session, pod.pong, now);
      }
    } else if (auto* write = std::get_if<WriteResponse>(&command)) {
      calls[write->call].Add(write->response);
    } else if (auto* finish = std::get_if<FinishCall>(&command)) {
      calls[finish->call].End(*finish);
    } else if (auto* line = std::get_if<LogLine>(&command)) {
      log.push_back(*line);
    } else if (auto* give_up = std::get_if<GiveUp>(&command)) {
      gave_up = give_up->status;
    }
  }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_FLEET_DRIVER_H_
