// Which requests get in, which of them wait, and which pod takes each of them.
#ifndef TANDEM_SERVICES_ROUTER_ADMISSION_ADMISSION_H_
#define TANDEM_SERVICES_ROUTER_ADMISSION_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/router/admission/placement.h"
#include "services/router/admission/quarantine.h"
#include "services/router/admission/refusal.h"
#include "services/router/admission/replay_queue.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/pod_report.h"

namespace tandem {

// Owns every request that has no slot: new requests, streams that lost their place, and replays of
// the audit. It also knows the ids of all requests and the prompts in quarantine. All of this is
// the same for any number of pods, one included.
//
// - A new request waits in one queue (--max-queue, for all pods) until a pod has room for it.
// - The order, among the requests that the same pod may serve, is first come, first served. Streams
//   that lost their place go before new requests, the oldest first. What waits keeps younger
//   requests only from pods that it may go to itself.
// - A stream that has output goes only to a pod with the numerics that made its newest token, for
//   then its tokens are the very same, or back to the pod that had it last. If no such pod serves
//   for --verifier-timeout, the stream ends.
// - A replay runs where nothing else does, at a pod with the numerics of its request.
//
// Pure: `now` is seconds on a monotonic clock, and what clients are told comes out as commands.
class Admission {
 public:
  // `tokenizer` and `observer` must outlive it. `turn`: where equal pods begin to take turns.
  Admission(const EngineOptions& options, const Tokenizer* tokenizer, EngineObserver* observer,
            uint64_t turn);

  // The answer to any request that comes now, whatever it says; none: it may be taken. To be asked
  // before the work of reading a request, so that overload costs little.
  std::optional<Refusal> RefusesAll(const PodsView& view, double now) const;
  // Takes a request up, or refuses it. Next may place it then. RefuseOverflow must follow.
  void Enqueue(CallId call, GenerationRequest request, const PodsView& view, double now);
  // Refuses the newest request if more requests wait than may.
  void RefuseOverflow(const PodsView& view);
  // Takes a waiting request out. Null: it does not wait here.
  std::unique_ptr<Sequence> TakeBack(CallId call);
  // A request is canceled, and its sequence was taken back from wherever it was.
  void Forget(const Sequence& sequence, double now);

  // A sequence left its slot, or a prompt has changed. After kSuspect and kPrompt, EndWaitingCopies
  // must follow.
  void TakeReport(PodReport report, double now);
  // Whether a sequence must end, because its prompt has meanwhile come into quarantine. A sequence
  // whose prompt a verifier has computed may go on.
  bool IsQuarantined(const Sequence& sequence, double now) const;
  // Such a sequence was taken back from its slot.
  void EndQuarantined(const Sequence& sequence);
  // Ends such sequences that wait. Returns true if there were any.
  bool EndWaitingCopies(double now);

  // A sequence lost its place. It waits for another, before new requests.
  void Return(std::unique_ptr<Sequence> sequence, double now);

  // The next sequence that a pod takes, and that pod. None: nothing fits, and check_at says when
  // something may fit with time alone. `candidates`: pods whose room may have changed since Next
  // last returned none.
  struct Placement {
    size_t pod = 0;  // index into view.pods
    std::unique_ptr<Sequence> sequence;
  };
  std::optional<Placement> Next(const PodsView& view, const std::vector<size_t>& candidates,
                                double now);

  // A pod of the view is about to leave it. Until now, some sequences could run there.
  void NoteServed(const PodsView& view, double now);
  // Ends requests that nothing could serve for too long. To be called when check_at is over.
  void Check(const PodsView& view, double now);
  double check_at() const { return check_at_; }

  void Drain();  // refuses new requests; those that wait go on
  void EndAll(const absl::Status& status);

  EngineCommands TakeCommands() { return std::exchange(commands_, {}); }
  bool draining() const { return draining_; }
  // Returns true if a sequence that waits had its last slot at the pod, and may return there.
  bool AwaitsPod(const PodView& pod) const;
  // Clients' requests without a slot.
  size_t num_waiting() const { return moving_.size() + waiting_.size(); }
  // Returns true if some pod may run the sequence, whatever room it has (MayRun).
  bool MayRunSomewhere(const PodsView& view, const Sequence& sequence) const;
  uint64_t num_finished() const { return num_finished_; }
  // Requests whose ids no new request may have.
  size_t num_request_ids() const { return request_ids_.size(); }

 private:
  using Waiting = std::deque<std::unique_ptr<Sequence>>;

  // OK, or why this request gets no place.
  absl::Status CheckRequest(const GenerationRequest& request, uint64_t capacity, double now) const;
  Refusal QueueIsFull(const PodsView& view) const;
  // Sees to it that what begins to wait is checked.
  void BeginChecks(double now);
  // Those of the free pods that the sequence may go to. `largest`: PodsView::LargestCapacity.
  std::vector<size_t> Choices(const PodsView& view, const std::vector<size_t>& free_pods,
                              const Sequence& sequence, uint64_t largest) const;
  std::unique_ptr<Sequence> Admit(std::unique_ptr<Sequence> sequence, double now);
  std::optional<Placement> NextReplay(const PodsView& view, const std::vector<size_t>& candidates,
                                      double now);
  // Whether this prompt killed too many verifiers, and what a client is told then.
  bool Refuses(uint64_t prompt_hash, double now) const;
  absl::Status Quarantined() const;
  // Tells the client, and remembers the prompt. Finish only tells the client.
  void End(const Sequence& sequence, const absl::Status& status, double now);
  void Finish(const Sequence& sequence, const absl::Status& status);
  // The sequence is about to go. What it knows of its prompt is kept for later requests.
  void Remember(const Sequence& sequence, double now);
  void OnFinished(const Sequence& sequence, const absl::Status& status, double now);
  void OnSuspect(const Sequence& sequence, double now);
  // Keeps what is known of the prompt, and tells what waits.
  void OnPrompt(const PromptDeaths& prompt, double now);
  void Keep(const PromptDeaths& prompt, double now);

  const EngineOptions options_;
  const Tokenizer* tokenizer_;
  EngineObserver* observer_;
  EngineCommands commands_;
  // Ids of requests that wait or run. Choices of one call have the same id.
  std::unordered_multiset<std::string> request_ids_;
  Quarantine quarantine_;
  Waiting moving_;   // streams that lost their place, the oldest first
  Waiting waiting_;  // new requests
  ReplayQueue replays_;
  uint64_t last_order_ = 0;
  uint64_t turn_;
  double check_at_ = std::numeric_limits<double>::infinity();
  double mean_service_seconds_ = 1.0;  // mean of finished requests, for the retry hint
  uint64_t num_finished_ = 0;
  bool draining_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ADMISSION_ADMISSION_H_
