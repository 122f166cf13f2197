// All things that a seed decides beforehand: sizes, clients, and faults.
#ifndef TANDEM_TESTS_SIMULATOR_SCENARIO_SCENARIO_H_
#define TANDEM_TESTS_SIMULATOR_SCENARIO_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/router/engine/engine_options.h"
#include "services/router/request/generation_request.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/simulator/scenario/toy_pair.h"

namespace tandem::simulator {

// Returns the pod to which a router's session belongs. Fleet numbers sessions in this way.
inline uint32_t PodOf(SessionId session) { return static_cast<uint32_t>(session >> 32); }

struct WorkerPlan {
  uint32_t max_slots = 4;
  uint32_t max_context_tokens = 64;
  uint32_t page_tokens = 4;
  uint32_t num_pages = 64;
  std::vector<v1::RingTransport> transports;
  double cache_hit_chance = 0.5;  // chance that a page of the prefix cache is still found
  double longest_batch_seconds = 0.01;
  double non_finite_chance = 0;  // chance for each row that a drafter computes
};

// A request and its expected result.
struct ClientPlan {
  size_t index = 0;
  double at = 0;
  // sampling.seed is index + 1. It tells the workers to which client a slot belongs.
  GenerationRequest request;
  std::optional<double> cancel_after_seconds;
  // Number of responses that the client reads. After them it is too slow, and is canceled.
  std::optional<int> reads_responses;
  // First output position at which the target's logits are not finite.
  std::optional<uint32_t> non_finite_at;
  double poison = 0;  // chance that a Verify with this request kills the verifier
  // The verifier breaks the protocol each time it answers this request.
  bool is_answered_wrongly = false;

  // The expected result without faults. `tokens` holds the prompt and the output, which a stop or
  // max_tokens ends.
  std::vector<int32_t> tokens;
  std::vector<uint64_t> hashes;  // hashes[n] is the hash of the first n tokens
  std::string text;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;

  uint32_t prompt_len() const { return static_cast<uint32_t>(request.prompt_token_ids.size()); }
};

struct Fault {
  enum class Kind : uint8_t {
    kKill,             // the process dies and is restarted after `seconds`
    kKillSilently,     // like kKill, but the router is not told, as if the machine went away
    kStop,             // SIGSTOP for `seconds`: nothing is answered, and then everything is late
    kStuck,            // like kStop, but pings are answered, as if it computes without progress
    kEndStreams,       // all streams end, and the process lives on
    kLoseRows,         // slots lose rows, or hold rows of other tokens
    kBadReply,         // the next batch's answer is wrong in a way that must be noticed
    kSpoilRing,        // rows of the ring fail their checks for `seconds`
    kOtherVocabulary,  // the drafter comes back with another vocabulary for `seconds`
    kRouterDies,       // another router takes its place, and its streams linger for `seconds`
    kDrain,
    kStopRouter,  // Fleet::Stop, and then the same as kRouterDies
    kToldToStop,  // the worker says so with each pong, and ends after `seconds`
  };
  Kind kind;
  Worker worker = Worker::kVerifier;
  double at = 0;
  double seconds = 0;
  uint32_t pod = 0;  // pod of the worker
  // The fault is that of all drafters of the pod at once. Otherwise one of them is drawn.
  bool of_all_drafters = false;
};

// The operator changes the draft models or the heads of all routers that live. Some changes are
// refused.
struct Swap {
  enum class Kind : uint8_t { kLoad, kPromote, kRollBack, kUnload, kSwapHeads, kRollBackHeads };
  Kind kind;
  double at = 0;
  std::string model = {};  // for kLoad, kUnload and kSwapHeads
  double share = 1;        // for kLoad
};

struct NetworkPlan {
  double longest_seconds = 0.003;
  // Messages about slots are dropped, repeated or late. gRPC never does so, but absolute and
  // numbered commands must survive it. A stream that lost a message ends soon after.
  bool lossy = false;
  double drop_chance = 0;
  double repeat_chance = 0;
  double late_chance = 0;
};

struct Scenario {
  uint64_t seed = 0;
  std::string profile;
  ToyPair pair;
  EngineOptions engine;
  uint32_t num_routers = 1;  // number of routers that live at the same time
  uint32_t num_pods = 1;     // pods of one verifier and its drafters; every router uses all pods
  WorkerPlan drafter;
  WorkerPlan verifier;
  std::string drafter_boot_id = "host";
  bool has_heads = false;     // verifiers begin with a drafter of their own
  uint32_t first_states = 0;  // states of the target's rows that it reads (FakeHeads::states)
  double drafter_starts_at = 0;
  NetworkPlan network;
  double window_seconds = 0;        // time in which clients arrive
  std::vector<ClientPlan> clients;  // clients by index
  // What the retrieval drafter finds: the texts of all clients, and others that go on differently.
  std::vector<std::vector<int32_t>> corpus;
  std::vector<Fault> faults;
  std::vector<Swap> swaps;
  double heals_at = 0;  // time at which all faults end and all dead processes live again
};

inline constexpr double kStartTime = 100;

// Name of the draft model of this peer.
inline std::string DraftModelName(PeerId drafter) { return "fake-" + PeerName(drafter); }

// Names of models that are loaded later. A worker cannot load those that are broken.
inline std::string LoadedModelName(int number, bool broken) {
  return (broken ? "broken-" : "loaded-") + std::to_string(number);
}
// The same for heads. Heads 0 read no rows of the target, heads 1 and 3 read the same states of
// them, and heads 2 read others.
inline std::string HeadsName(int number, bool broken) {
  return (broken ? "broken-heads-" : "heads-") + std::to_string(number);
}
inline bool IsBroken(const std::string& model) { return model.starts_with("broken-"); }

// Computes the answer of the target alone to `client->request`, in a naive way.
void FillUndisturbed(const ToyPair& pair, const testing::ToyTokenizer& tokenizer,
                     ClientPlan* client);

Scenario MakeScenario(uint64_t seed);

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_SCENARIO_SCENARIO_H_
