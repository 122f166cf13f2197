// A router's worker pods, and the requests that go to them: admission, and one engine for each pod.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/router/admission/admission.h"
#include "services/router/audit/audit_monitor.h"
#include "services/router/engine/pod_engine.h"
#include "services/router/fleet/fleet_state.h"
#include "services/router/fleet/pod_spec.h"

namespace tandem {

// Pure: events in, commands out. A session's number says which pod it belongs to.
//
// Every event has three steps (Turn):
//   settle  the pod's engine takes the event, and admission takes what the pod reports;
//   fill    admission gives what waits to the pods that have room;
//   send    each pod that anything happened to sends its next batches.
//
// - A pod that loses its verifier gives its requests to the others, which rebuild them.
// - A pod that is taken from the list gets nothing new, and goes when its last request ended.
// - A pod that was told to stop gets nothing new while another pod serves, and keeps what runs
//   there.
// - When each pod has said that it does not fit, the router gives up.
class Fleet {
 public:
  // `tokenizer` and `observer` must outlive it. `turn`: where equal pods begin to take turns, at
  // random, so that several routers do not all begin with the same pod.
  Fleet(const EngineOptions& options, const Tokenizer* tokenizer,
        EngineObserver* observer = NobodyObserves(), uint64_t turn = 0);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Once, before all else; pods follow.
  void Start(double now) { down_since_ = now; }
  // All pods that there are. New ones are attached, those that are not named any more drain.
  void SetPods(const std::vector<PodSpec>& specs, double now);

  // These are all draft models from now on (fleet_drafters.h). `what` says in the log what changed.
  void SetRoster(const DraftRoster& roster, const std::string& what, double now);
  const DraftRoster& roster() const { return roster_; }

  // Clients' events. RefusesAll: as of Admission.
  std::optional<Refusal> RefusesAll(double now);
  void OnRequest(CallId call, GenerationRequest request, double now);
  // Also deadline, disconnect and slow client; the call is forgotten. Returns the slot that it had
  // last.
  std::optional<SlotLife> OnCancel(CallId call, double now);

  // Workers' events.
  void OnDraftReply(SessionId session, v1::DraftReply& reply, double now);
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now);
  void OnSearched(const SearchCorpus& search, std::vector<CorpusAnswer> answers, double now);
  void OnSessionLost(Worker worker, SessionId session, const std::string& why, double now);
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong, double now);

  void Tick(double now);
  void Drain();           // refuses new requests; those that run or wait go on
  void Stop(double now);  // ends those too, with UNAVAILABLE

  EngineCommands TakeCommands();
  // The commands taken have been carried out.
  void OnCommandsSent(double now);
  double NextDeadline() const;

  // Null: the pod is gone.
  const PodSpec* PodOf(SessionId session) const;
  // What a request may count on: the first verifier that attached said so. Null: none did.
  const v1::AttachReply* promised() const { return promised_.has_value() ? &*promised_ : nullptr; }
  // Returns true if some verifier serves, and has its drafter if that is required.
  bool ready() const { return num_serving_ > 0; }
  bool idle() const;
  const AuditMonitor& audit() const { return audit_; }
  size_t num_pods() const { return pods_.size(); }
  size_t num_waiting() const { return admission_.num_waiting(); }
  const PodEngine& engine(size_t pod) const { return *pods_[pod]->engine; }
  FleetState State() const;

 private:
  struct Pod {
    PodId id = 0;
    PodSpec spec;
    std::unique_ptr<PodEngine> engine;
    bool ready = false;     // whether its verifier is ready, as last noticed
    bool serves = false;    // whether it is ready, and has its drafter if that is required
    bool stays = false;     // whether it serves and will go on to
    bool leaving = false;   // whether it is not in the list any more
    std::string complaint;  // why its configuration is wrong, to be said once
  };

  PodsView View() const { return {views_, num_serving_ > 0, down_since_}; }
  std::optional<size_t> Find(SessionId session) const;
  void AddPod(const PodSpec& spec, double now);
  void RemoveDrained();

  // The steps after a pod's engine took an event.
  void Turn(size_t pod, double now);
  // Lets the pod of a session settle an event. The pod may have left the list.
  template <typename Event>
  void Settle(SessionId session, double now, const Event& settle) {
    const std::optional<size_t> pod = Find(session);
    if (pod.has_value()) settle(*pods_[*pod]->engine);
    if (pod.has_value()) Turn(*pod, now);
  }
  // Returns true if other pods may have got room too.
  bool Settle(size_t pod, double now);
  // Ends requests whose prompt has just come into quarantine, wherever they are. Returns true if
  // there were any.
  bool EndQuarantined(double now);
  // Fills the candidates, and lets the senders and whoever got a sequence send. Sequences that give
  // their slots up while a pod sends are offered to the other pods.
  void FillAndSend(std::vector<size_t> candidates, std::vector<size_t> senders, double now);
  // The same where nothing happened: a pod may have got room with time alone.
  void FillAgain(double now);
  // Sees to it that the queue is full only if nothing that waits there can be placed now.
  void MakeRoom(double now);
  // Takes those of a lost pod's requests that others may run. Returns true if there are any.
  bool TakeOver(size_t pod, double now);
  std::vector<size_t> AllPods() const;

  // Renews what admission and the deadlines know of the pod.
  void Refresh(size_t pod, double now);
  // Returns true if the pod gets no new requests: either it left the list, or it is draining while
  // another pod stays.
  bool TakesNothingNew(const Pod& pod) const;
  // Returns true if the pod has no drafter that fits, although one is required.
  bool LacksDrafter(const Pod& pod) const;
  // Notes that the verifier's promise holds for all pods.
  void Promise(const Pod& pod);
  void GiveUpIfNobodyFits();
  bool NobodyFits() const;

  void Collect(size_t pod);
  // Takes the commands of admission: calls that end.
  void CollectEnds();
  // Makes the command one of the fleet. Returns false if nothing is left of it.
  bool MakeOwn(size_t pod, EngineCommand* command);
  void Log(LogLine::Level level, const Pod& pod, std::string text);

  const EngineOptions options_;
  const Tokenizer* tokenizer_;
  EngineObserver* observer_;
  AuditMonitor audit_;
  Admission admission_;
  DraftRoster roster_;
  std::vector<std::unique_ptr<Pod>> pods_;  // by id
  std::vector<PodView> views_;              // by place in pods_, as of the pod's last event
  std::vector<double> deadlines_;           // by place in pods_
  PodId next_pod_ = 0;
  std::optional<v1::AttachReply> promised_;
  EngineCommands commands_;
  std::vector<PodId> sending_;  // pods whose commands were collected
  Counts left_;                 // counts of pods that are gone
  size_t num_serving_ = 0;
  size_t num_staying_ = 0;
  size_t num_leaving_ = 0;
  double down_since_ = 0;  // since when no verifier serves
  double now_ = 0;         // time of the newest event
  bool gave_up_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_H_
