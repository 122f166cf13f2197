// All that a seed decides beforehand: sizes, clients, faults.
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

// Which of a router's pods a session is of: Fleet numbers them so.
inline uint32_t PodOf(SessionId session) { return static_cast<uint32_t>(session >> 32); }

struct WorkerPlan {
  uint32_t max_slots = 4;
  uint32_t max_context_tokens = 64;
  uint32_t page_tokens = 4;
  uint32_t num_pages = 64;
  std::vector<v1::RingTransport> transports;
  double cache_hit_chance = 0.5;  // that a page which the prefix cache has is still found
  double longest_batch_seconds = 0.01;
  double non_finite_chance = 0;  // of a drafter's item
};

// A request with what must come of it.
struct ClientPlan {
  size_t index = 0;
  double at = 0;
  GenerationRequest
      request;  // sampling.seed: index + 1, by which workers are told whose slot it is
  std::optional<double> cancel_after_seconds;
  std::optional<int> reads_responses;  // then it is too slow, and is cancelled
  // Output position from which on the target's logits are not finite.
  std::optional<uint32_t> non_finite_at;
  double poison = 0;  // chance that a Verify with it kills the verifier
  // By a verifier that breaks the protocol with it each time.
  bool is_answered_wrongly = false;

  // Undisturbed: prompt and output, ended by a stop or by max_tokens.
  std::vector<int32_t> tokens;
  std::vector<uint64_t> hashes;  // [n]: of the first n of them
  std::string text;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;

  uint32_t prompt_len() const { return static_cast<uint32_t>(request.prompt_token_ids.size()); }
};

struct Fault {
  enum class Kind : uint8_t {
    kKill,             // the process dies; restarted after `seconds`
    kKillSilently,     // the same, and the router is not told: a machine that went away
    kStop,             // SIGSTOP for `seconds`: nothing is answered, then everything late
    kStuck,            // the same, but pings are answered: computes without progress
    kEndStreams,       // the process lives on
    kLoseRows,         // of its slots, or other tokens in them
    kBadReply,         // the next batch's answer is wrong in a way that must be noticed
    kSpoilRing,        // rows of the ring fail their checks from now on, for `seconds`
    kOtherVocabulary,  // the drafter comes back as one that does not fit, for `seconds`
    kRouterDies,       // and another takes its place; its streams linger for `seconds`
    kDrain,
    kStopRouter,  // Fleet::Stop, then as kRouterDies
    kToldToStop,  // the worker says so with each pong, and ends after `seconds`
  };
  Kind kind;
  Worker worker = Worker::kVerifier;
  double at = 0;
  double seconds = 0;
  uint32_t pod = 0;  // the worker's
};

struct NetworkPlan {
  double longest_seconds = 0.003;
  // Of messages that are about slots: not what gRPC does, but what absolute and numbered commands
  // must survive. A stream that lost a message ends soon after.
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
  uint32_t num_routers = 1;  // at once
  uint32_t num_pods = 1;     // a verifier and its drafter each; every router serves over all
  WorkerPlan drafter;
  WorkerPlan verifier;
  std::string drafter_boot_id = "host";
  double drafter_starts_at = 0;
  NetworkPlan network;
  double window_seconds = 0;        // in which clients arrive
  std::vector<ClientPlan> clients;  // by index
  std::vector<Fault> faults;
  double heals_at = 0;  // all faults are over, and what was dead is alive
};

inline constexpr double kStartTime = 100;

// What the target alone would say to `client->request`, told naively.
void FillUndisturbed(const ToyPair& pair, const testing::ToyTokenizer& tokenizer,
                     ClientPlan* client);

Scenario MakeScenario(uint64_t seed);

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_SCENARIO_SCENARIO_H_
