// Simulates rounds of drafting and verifying with known costs and acceptances, to measure the value
// of a choice of draft lengths.
#ifndef TANDEM_TESTS_ROUTER_DRAFTING_DRAFT_SIMULATION_H_
#define TANDEM_TESTS_ROUTER_DRAFTING_DRAFT_SIMULATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
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

struct Simulation {
  std::vector<SimulatedSlot> slots;
  std::function<TrueCosts(uint64_t round)> costs;
  uint64_t rounds = 2000;
  uint32_t longest = 8;
  // The noise of the times that the controller gets: the standard deviation of their logarithms,
  // and the share of times that are ten times longer.
  double noise = 0.15;
  double spikes = 0.01;
  bool reports_catch_up = true;
  Mistake mistake = Mistake::kNone;
};

struct SimulatedRound {
  double tokens = 0;
  double seconds = 0;  // without noise
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

// Runs with `policy`. `controller` gets all measurements, also if another policy chooses.
inline std::vector<SimulatedRound> Simulate(const Simulation& simulation,
                                            DraftLengthController& controller,
                                            const LengthPolicy& policy) {
  struct Running {
    uint64_t serial;
    uint64_t committed;  // output tokens
    uint64_t lack;
    AcceptanceMode mode;
    AcceptanceEstimate acceptance;
  };
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal;
  const auto noisy = [&](double seconds) {
    const bool spike = std::generate_canonical<double, 32>(generator) < simulation.spikes;
    return seconds * std::exp(simulation.noise * normal(generator)) * (spike ? 10 : 1);
  };

  uint64_t last_serial = 0;
  std::vector<Running> running;
  // Position in the slot's text, over all its requests.
  std::vector<uint64_t> places(simulation.slots.size());
  std::vector<uint64_t> requests(simulation.slots.size());  // number of requests of the slot so far
  const auto start = [&](size_t slot_id) {
    const SimulatedSlot& slot = simulation.slots[slot_id];
    const AcceptanceMode mode = slot.modes[requests[slot_id]++ % slot.modes.size()];
    return Running{++last_serial, 0, slot.prompt_tokens + 1, mode, controller.NewEstimate(mode)};
  };
  for (size_t i = 0; i < simulation.slots.size(); ++i) running.push_back(start(i));

  std::vector<SimulatedRound> rounds;
  for (uint64_t number = 0; number < simulation.rounds; ++number) {
    const TrueCosts costs = simulation.costs(number);
    const bool told = simulation.mistake != Mistake::kNeverForgetsCosts || number < 50;
    std::vector<DraftCandidate> candidates(running.size());
    for (size_t i = 0; i < running.size(); ++i) {
      const auto left =
          static_cast<uint32_t>(simulation.slots[i].output_tokens - running[i].committed);
      candidates[i].acceptance = &running[i].acceptance;
      candidates[i].serial = running[i].serial;
      candidates[i].limit = std::min(simulation.longest, left - 1);
      candidates[i].drafter_lack = static_cast<uint32_t>(
          simulation.mistake == Mistake::kForgetsCatchUp ? 1 : running[i].lack);
      candidates[i].remaining_tokens = left;
    }
    policy(candidates);

    SimulatedRound round;
    std::vector<uint32_t> asked;
    uint32_t catch_up_rows = 0;
    auto rows = static_cast<uint32_t>(running.size());
    for (size_t i = 0; i < running.size(); ++i) {
      const uint32_t length = candidates[i].length;
      round.lengths.push_back(length);
      rows += length;
      if (length == 0) continue;
      asked.push_back(length);
      catch_up_rows += static_cast<uint32_t>(running[i].lack);
    }
    const double overhead_share = simulation.mistake == Mistake::kIgnoresOverheads ? 1e-6 : 1;
    if (!asked.empty()) {
      const double first = costs.pass(catch_up_rows);
      double rest = 0;
      for (uint32_t pass = 2; pass <= *std::max_element(asked.begin(), asked.end()); ++pass) {
        rest += costs.pass(static_cast<double>(std::count_if(
            asked.begin(), asked.end(), [&](uint32_t length) { return length >= pass; })));
      }
      round.seconds += first + rest + costs.propose_overhead;
      const double told_first = noisy(first);
      ProposeCost cost;
      cost.draft_lengths = asked;
      cost.catch_up_rows = catch_up_rows;
      cost.compute_seconds = told_first + noisy(rest);
      cost.catch_up_seconds = simulation.reports_catch_up ? told_first : 0;
      cost.overhead_seconds = overhead_share * noisy(costs.propose_overhead);
      if (told) controller.ObservePropose(cost);
    }
    round.seconds += costs.verify(rows) + costs.verify_overhead;
    VerifyCost cost;
    cost.rows = rows;
    cost.compute_seconds =
        noisy(costs.verify(simulation.mistake == Mistake::kIgnoresRows ? running.size() : rows));
    cost.overhead_seconds = overhead_share * noisy(costs.verify_overhead);
    if (told) controller.ObserveVerify(cost);

    for (size_t i = 0; i < running.size(); ++i) {
      const SimulatedSlot& slot = simulation.slots[i];
      Running& at = running[i];
      const uint32_t length = round.lengths[i];
      uint32_t accepted = 0;
      while (accepted < length && slot.agrees(places[i] + accepted)) ++accepted;
      if (simulation.mistake != Mistake::kBelievesThePrior) {
        controller.ObserveAcceptance(at.serial, at.mode, length, accepted, &at.acceptance);
      }
      at.committed += accepted + 1;
      places[i] += accepted + 1;
      round.tokens += accepted + 1;
      at.lack = length == 0 ? at.lack + 1 : accepted + 1 - std::min(length - 1, accepted);
      if (at.committed >= slot.output_tokens) at = start(i);
    }
    rounds.push_back(std::move(round));
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
