// A router's worker pods: one engine for each, and the requests that go to them.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/router/engine/engine.h"
#include "services/router/engine/pod_room.h"
#include "services/router/engine/request_ledger.h"
#include "services/router/fleet/fleet_state.h"
#include "services/router/fleet/pod_spec.h"

namespace tandem {

// Pure, like the engine: events in, commands out. A session's number says which pod it is of.
//
// With one pod it is that pod's engine and nothing more. With several:
// - A request goes to the pod with the most room (PlaceRequest) and takes a slot at once; where
//   nobody has room it waits here, not at a pod, and goes to whoever has room first. Order, among
//   those that the same pod may serve: first come, first served; streams that lost their place go
//   before new requests, the oldest first.
// - A pod that loses its verifier gives its requests to the others, which rebuild them. A stream
//   that has output goes only where the numerics are the same, for then its tokens are the very
//   same; where no such pod is ready it waits for its own (--verifier-timeout).
// - A request whose verifier died with it in the batch goes only to a pod that was heard since: one
//   that died too, and was not noticed yet, would count against the request (--max-crashes).
// - A pod that is taken from the list gets nothing new, and goes when its last request ended.
// - A pod that was told to stop gets nothing new while another serves, and keeps what runs there.
// - When each pod has said that it does not fit, the router gives up, as with one.
class Fleet {
 public:
  // `tokenizer` and `observer` must outlive it. `options` as for one engine; max_queue is of all.
  // `turn`: where equal pods begin to take turns, at random, so that several routers do not all
  // begin with the same.
  Fleet(const EngineOptions& options, const Tokenizer* tokenizer,
        EngineObserver* observer = NobodyObserves(), uint64_t turn = 0);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Once, before all else; pods follow.
  void Start(double now);
  // All pods that there are. New ones are attached, those that are not named any more drain.
  void SetPods(const std::vector<PodSpec>& specs, double now);

  // As the engine's.
  std::optional<Engine::Refusal> RefusesAll(double now) const;
  void OnRequest(CallId call, GenerationRequest request, double now);
  std::optional<SlotLife> OnCancel(CallId call, double now);
  void OnDraftReply(SessionId session, v1::DraftReply& reply, double now);
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now);
  void OnSessionLost(Worker worker, SessionId session, const std::string& why, double now);
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong, double now);
  void Tick(double now);
  void Drain();
  void Stop(double now);
  EngineCommands TakeCommands();
  void OnCommandsSent(double now);
  double NextDeadline() const;

  // Null: the pod is gone.
  const PodSpec* PodOf(SessionId session) const;
  // What a request may count on: the first verifier that attached said so. Null: none did.
  const v1::AttachReply* promised() const;
  // Some verifier serves, and has its drafter if that is required.
  bool ready() const { return num_ready_ > 0; }
  bool drafters_settled() const;
  bool idle() const;
  const AuditMonitor& audit() const { return ledger_.audit; }
  std::string drafter_name() const;
  size_t num_pods() const { return pods_.size(); }
  size_t num_waiting() const { return moving_.size() + waiting_.size(); }
  const Engine& engine(size_t pod) const { return *pods_[pod]->engine; }
  FleetState State() const;

 private:
  using PodId = uint32_t;
  struct Pod {
    PodId id;
    PodSpec spec;
    std::unique_ptr<Engine> engine;
    bool ready = false;     // its verifier, as last noticed
    bool serves = false;    // counted in num_ready_
    bool stays = false;     // counted in num_staying_
    bool leaving = false;   // not in the list any more
    double heard_at = 0;    // when its verifier last answered anything
    std::string complaint;  // why its configuration is wrong: said once
  };
  enum class Fit : uint8_t { kNow, kLater, kNever };

  // One engine is all there is.
  bool single() const { return pods_.size() == 1 && moving_.empty() && waiting_.empty(); }
  std::optional<size_t> Find(SessionId session) const;
  void AddPod(const PodSpec& spec, double now);
  // The end of every event of a pod.
  void AfterEvent(size_t pod, double now);
  // True: its verifier serves, and did not before.
  bool NoticeReadiness(size_t pod, double now);
  void SetServes(Pod& pod, bool serves, double now);
  // Counts it among those that serve and will go on to.
  void NoticeStay(Pod& pod);
  // It gets nothing new. One that was told to stop does, where nobody else could.
  bool Goes(const Pod& pod) const;
  // It is required, and does not fit.
  bool LacksDrafter(const Pod& pod) const;
  // All have answered, and none can be used.
  bool NobodyFits() const;
  // A sign of life of the session's worker.
  void HearFrom(size_t pod, SessionId session, double now);
  void Promise(const v1::AttachReply& info);
  void Refresh(size_t pod, double now);

  // Takes over what waits at the pod and, where its verifier is gone, what runs there. False:
  // nothing.
  bool TakeOver(size_t pod, double now);
  void Await(std::vector<std::unique_ptr<Sequence>> released, double now);
  // Gives the pod what fits of that which waits.
  void Fill(size_t pod, double now);
  void FillAll(double now);
  Fit FitOf(size_t pod, const Sequence& sequence) const;
  // Whatever room there is.
  bool MayRunAt(size_t pod, const Sequence& sequence) const;
  bool MayRunSomewhere(const Sequence& sequence) const;
  // The pod lived after a verifier was last lost with the sequence in its batch.
  bool MayTry(size_t pod, const Sequence& sequence) const;
  // Another pod has room for it now.
  bool FitsElsewhere(size_t pod, const Sequence& sequence) const;
  // `kept`: by pod; those get nothing.
  std::optional<size_t> Place(const Sequence& sequence, const std::vector<bool>& kept) const;
  void Adopt(size_t pod, std::unique_ptr<Sequence> sequence, double now);
  size_t LargestPod() const;
  Engine::Refusal QueueIsFull() const;
  void CheckWaiting(double now);

  void RemoveLeft();
  void Collect(size_t pod);
  // What the outside sees of a command of one pod among several; false: nothing.
  bool Dress(size_t pod, EngineCommand* command);
  void Log(LogLine::Level level, const Pod& pod, std::string text);
  void End(const Sequence& sequence, const absl::Status& status);
  void EndWaiting(const absl::Status& status);

  const EngineOptions options_;
  const Tokenizer* tokenizer_;
  EngineObserver* observer_;
  RequestLedger ledger_;
  std::vector<std::unique_ptr<Pod>> pods_;  // by id
  std::vector<PodRoom> rooms_;              // by place in pods_, as of the pod's last event
  std::vector<double> deadlines_;           // likewise
  PodId next_pod_ = 0;
  uint64_t turn_;
  std::optional<v1::AttachReply> promised_;
  // Streams that lost their place, and new requests. What waits is in no engine.
  std::deque<std::unique_ptr<Sequence>> moving_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  EngineCommands commands_;
  std::vector<PodId> sending_;  // whose commands were collected
  Counts left_;                 // counts of pods that are gone, and of what ended here
  size_t num_ready_ = 0;
  size_t num_staying_ = 0;  // serve, and neither leave nor were told to stop
  size_t num_leaving_ = 0;
  double down_since_ = 0;                                      // while no verifier serves
  double check_at_ = std::numeric_limits<double>::infinity();  // what waits
  double event_at_ = 0;                                        // the newest event
  bool draining_ = false;
  bool gave_up_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_H_
