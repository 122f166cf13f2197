// Simulates rounds of drafting and verifying with known costs and acceptances, to measure the value
// of a choice of draft lengths.
#ifndef TANDEM_TESTS_ROUTER_DRAFTING_DRAFT_SIMULATION_H_
#define TANDEM_TESTS_ROUTER_DRAFTING_DRAFT_SIMULATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "services/router/drafting/draft_length_controller.h"

namespace tandem {

// The true costs of the workers, in seconds.
struct TrueCosts {
  std::function<double(double rows)> pass;
  std::function<double(double rows)> verify;
  double propose_overhead = 0;
  double verify_overhead = 0;
};

// Teaches `observer`, DraftCosts or a controller, costs without noise of up to 16 rows: `pass` and
// `verify` by rows, and the overhead of each.
template <typename Pass, typename Verify, typename Observer>
void ObserveCosts(const Pass& pass, const Verify& verify, double overhead, Observer* observer) {
  for (int i = 0; i < 30; ++i) {
    for (uint32_t rows = 1; rows <= 16; ++rows) {
      const std::vector<uint32_t> length = {1};
      ProposeCost propose;
      propose.draft_lengths = length;
      propose.catch_up_rows = rows;
      propose.compute_seconds = pass(rows);
      propose.overhead_seconds = overhead;
      observer->ObservePropose(propose);
      VerifyCost cost;
      cost.rows = rows;
      cost.compute_seconds = verify(rows);
      cost.overhead_seconds = overhead;
      observer->ObserveVerify(cost);
    }
  }
}

// Returns whether the draft token at place `position` of a slot's text agrees with the target,
// given that all tokens before it agree. The result depends only on the place, so every policy
// meets the same text.
using Agreement = std::function<bool(uint64_t position)>;

// Returns a uniform number in [0, 1) that depends only on the arguments (SplitMix64, Steele et al.
// 2014).
inline double Uniform(uint64_t seed, uint64_t position) {
  uint64_t bits = (seed * 0xD1B54A32D192ED03 + position + 1) * 0x9E3779B97F4A7C15;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
}

inline Agreement AgreesWith(double alpha, uint64_t seed) {
  return [=](uint64_t position) { return Uniform(seed, position) < alpha; };
}

// One request after the other, all with the same number of tokens.
struct SimulatedSlot {
  Agreement agrees;
  std::vector<AcceptanceMode> modes = {AcceptanceMode::kGreedy};  // one for each request in turn
  uint32_t prompt_tokens = 16;
  uint32_t output_tokens = 1u << 30;
};

// Planted mistakes. The controller gets wrong inputs or settings, so that it acts like a controller
// with the mistake.
enum class Mistake {
  kNone,
  kIgnoresRows,       // assumes that a verifier's batch costs the same for all numbers of rows
  kIgnoresOverheads,  // assumes that messages are free
  kNeverProbes,
  kBelievesThePrior,   // never learns how many tokens were accepted
  kForgetsCatchUp,     // assumes that every drafter is up to date
  kNeverForgetsCosts,  // learns no costs after the first rounds
};

// Other work on the machine, which takes the time of the round. Each message waits with a
// probability, and each computation is interrupted with a probability, for up to `longest` seconds
// (uniformly distributed).
struct OtherWork {
  double waits = 0;
  double interrupts = 0;
  double longest = 0;
};

struct Simulation {
  std::vector<SimulatedSlot> slots;
  std::function<TrueCosts(uint64_t round)> costs;
  uint64_t rounds = 2000;
  double tokens = std::numeric_limits<double>::infinity();  // the simulation also ends after these
  uint32_t longest = 8;
  // The noise of the times that the controller gets: the standard deviation of their logarithms,
  // and the share of times that are ten times longer.
  double noise = 0.15;
  double spikes = 0.01;
  OtherWork other_work;
  uint64_t seed = 7;  // for the noise and the other work
  bool reports_catch_up = true;
  Mistake mistake = Mistake::kNone;
};

struct SimulatedRound {
  double tokens = 0;
  double seconds = 0;  // without noise, and with the time of other work
  std::vector<uint32_t> lengths;
};

inline double Rate(std::span<const SimulatedRound> rounds) {
  double tokens = 0;
  double seconds = 0;
  for (const SimulatedRound& round : rounds) {
    tokens += round.tokens;
    seconds += round.seconds;
  }
  return tokens / seconds;
}

// Sets the lengths of a round.
using LengthPolicy = std::function<void(std::span<DraftCandidate>)>;

// Runs a simulation round by round. The controller gets all measurements, also if another policy
// chooses.
class DraftSimulator {
 public:
  DraftSimulator(const Simulation& simulation, DraftLengthController& controller)
      : simulation_(simulation),
        controller_(controller),
        places_(simulation.slots.size()),
        requests_(simulation.slots.size()),
        generator_(simulation.seed) {
    for (size_t i = 0; i < simulation_.slots.size(); ++i) running_.push_back(Start(i));
  }

  SimulatedRound Run(uint64_t number, const LengthPolicy& policy) {
    const TrueCosts costs = simulation_.costs(number);
    tells_costs_ = simulation_.mistake != Mistake::kNeverForgetsCosts || number < 50;
    std::vector<DraftCandidate> candidates = Candidates();
    policy(candidates);
    SimulatedRound round;
    for (const DraftCandidate& candidate : candidates) round.lengths.push_back(candidate.length);
    Propose(costs, round);
    Verify(costs, round);
    Accept(round);
    return round;
  }

 private:
  struct Running {
    uint64_t serial;
    uint64_t committed;  // output tokens
    uint64_t lack;
    AcceptanceMode mode;
    AcceptanceEstimate acceptance;
  };

  Running Start(size_t slot_id) {
    const SimulatedSlot& slot = simulation_.slots[slot_id];
    const AcceptanceMode mode = slot.modes[requests_[slot_id]++ % slot.modes.size()];
    return {++last_serial_, 0, slot.prompt_tokens + 1, mode, controller_.NewEstimate(mode)};
  }

  double Noisy(double seconds) {
    const bool spike = std::generate_canonical<double, 32>(generator_) < simulation_.spikes;
    return seconds * std::exp(simulation_.noise * normal_(generator_)) * (spike ? 10 : 1);
  }

  // Returns the time that other work takes with this probability. The round takes it too.
  double OtherWorkTakes(double probability, SimulatedRound& round) {
    if (probability == 0 || std::generate_canonical<double, 32>(generator_) >= probability) {
      return 0;
    }
    const double seconds =
        simulation_.other_work.longest * std::generate_canonical<double, 32>(generator_);
    round.seconds += seconds;
    return seconds;
  }

  double OverheadShare() const {
    return simulation_.mistake == Mistake::kIgnoresOverheads ? 1e-6 : 1;
  }

  std::vector<DraftCandidate> Candidates() const {
    std::vector<DraftCandidate> candidates(running_.size());
    for (size_t i = 0; i < running_.size(); ++i) {
      const auto left =
          static_cast<uint32_t>(simulation_.slots[i].output_tokens - running_[i].committed);
      candidates[i].acceptance = &running_[i].acceptance;
      candidates[i].serial = running_[i].serial;
      candidates[i].limit = std::min(simulation_.longest, left - 1);
      candidates[i].drafter_lack = static_cast<uint32_t>(
          simulation_.mistake == Mistake::kForgetsCatchUp ? 1 : running_[i].lack);
      candidates[i].remaining_tokens = left;
    }
    return candidates;
  }

  // Drafts with the round's lengths.
  void Propose(const TrueCosts& costs, SimulatedRound& round) {
    std::vector<uint32_t> asked;
    uint32_t catch_up_rows = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (round.lengths[i] == 0) continue;
      asked.push_back(round.lengths[i]);
      catch_up_rows += static_cast<uint32_t>(running_[i].lack);
    }
    if (asked.empty()) return;
    const double first = costs.pass(catch_up_rows);
    double rest = 0;
    for (uint32_t pass = 2; pass <= *std::max_element(asked.begin(), asked.end()); ++pass) {
      rest += costs.pass(static_cast<double>(std::count_if(
          asked.begin(), asked.end(), [&](uint32_t length) { return length >= pass; })));
    }
    round.seconds += first + rest + costs.propose_overhead;
    const OtherWork& other = simulation_.other_work;
    const double told_first = Noisy(first);
    const double told_rest = Noisy(rest);
    const double first_interrupted = OtherWorkTakes(other.interrupts, round);
    const double rest_interrupted = rest > 0 ? OtherWorkTakes(other.interrupts, round) : 0;
    const double told_overhead = Noisy(costs.propose_overhead);
    const double waited = OtherWorkTakes(other.waits, round);
    ProposeCost cost;
    cost.draft_lengths = asked;
    cost.catch_up_rows = catch_up_rows;
    cost.compute_seconds = told_first + first_interrupted + told_rest + rest_interrupted;
    cost.catch_up_seconds = simulation_.reports_catch_up ? told_first + first_interrupted : 0;
    cost.overhead_seconds = OverheadShare() * (told_overhead + waited);
    if (tells_costs_) controller_.ObservePropose(cost);
  }

  void Verify(const TrueCosts& costs, SimulatedRound& round) {
    const auto rows = std::accumulate(round.lengths.begin(), round.lengths.end(),
                                      static_cast<uint32_t>(running_.size()));
    round.seconds += costs.verify(rows) + costs.verify_overhead;
    VerifyCost cost;
    cost.rows = rows;
    const OtherWork& other = simulation_.other_work;
    const double told =
        Noisy(costs.verify(simulation_.mistake == Mistake::kIgnoresRows ? running_.size() : rows));
    const double interrupted = OtherWorkTakes(other.interrupts, round);
    const double told_overhead = Noisy(costs.verify_overhead);
    const double waited = OtherWorkTakes(other.waits, round);
    cost.compute_seconds = told + interrupted;
    cost.overhead_seconds = OverheadShare() * (told_overhead + waited);
    if (tells_costs_) controller_.ObserveVerify(cost);
  }

  // Commits what the target accepts of each draft, and one token more.
  void Accept(SimulatedRound& round) {
    for (size_t i = 0; i < running_.size(); ++i) {
      const SimulatedSlot& slot = simulation_.slots[i];
      Running& at = running_[i];
      const uint32_t length = round.lengths[i];
      uint32_t accepted = 0;
      while (accepted < length && slot.agrees(places_[i] + accepted)) ++accepted;
      if (simulation_.mistake != Mistake::kBelievesThePrior) {
        controller_.ObserveDraft(at.serial, at.mode, JudgedChain(length, accepted), length,
                                 &at.acceptance);
      }
      at.committed += accepted + 1;
      places_[i] += accepted + 1;
      round.tokens += accepted + 1;
      at.lack = length == 0 ? at.lack + 1 : accepted + 1 - std::min(length - 1, accepted);
      if (at.committed >= slot.output_tokens) at = Start(i);
    }
  }

  const Simulation& simulation_;
  DraftLengthController& controller_;
  uint64_t last_serial_ = 0;
  std::vector<uint64_t> places_;    // position in the slot's text, over all its requests
  std::vector<uint64_t> requests_;  // number of requests of the slot so far
  std::mt19937_64 generator_;
  std::normal_distribution<double> normal_;
  std::vector<Running> running_;
  bool tells_costs_ = true;
};

inline std::vector<SimulatedRound> Simulate(const Simulation& simulation,
                                            DraftLengthController& controller,
                                            const LengthPolicy& policy) {
  DraftSimulator simulator(simulation, controller);
  std::vector<SimulatedRound> rounds;
  double tokens = 0;
  for (uint64_t number = 0; number < simulation.rounds && tokens < simulation.tokens; ++number) {
    rounds.push_back(simulator.Run(number, policy));
    tokens += rounds.back().tokens;
  }
  return rounds;
}

inline std::vector<SimulatedRound> RunController(const Simulation& simulation) {
  DraftLengthOptions options;
  if (simulation.mistake == Mistake::kNeverProbes) options.probe_budget = 0;
  DraftLengthController controller(options);
  return Simulate(simulation, controller,
                  [&](std::span<DraftCandidate> slots) { controller.Choose(slots, {}); });
}

inline std::vector<SimulatedRound> RunFixed(const Simulation& simulation,
                                            const std::vector<uint32_t>& lengths) {
  DraftLengthController unused({});
  return Simulate(simulation, unused, [&](std::span<DraftCandidate> slots) {
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i].length = std::min(slots[i].limit, lengths[i]);
    }
  });
}

}  // namespace tandem

#endif  // TANDEM_TESTS_ROUTER_DRAFTING_DRAFT_SIMULATION_H_
