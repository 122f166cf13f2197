#include "services/router/drafting/draft_length_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "tests/router/drafting/draft_simulation.h"

namespace tandem {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Le;

// The share that a controller may lose, compared with the best lengths in hindsight, and with plain
// decoding if drafts cannot pay. Everything from the first round of a server's life counts.
constexpr double kMostLost = 0.05;
constexpr double kMostLostToPlain = 0.02;

constexpr char kTraces[] = TANDEM_SOURCE_DIR "/tests/router/traces/";

// ---------------------------------------------------------------- pace

TEST(DraftLengthControllerTest, ARoundIsHurriedIfThePaceOfAllSlotsIsMuchFaster) {
  DraftLengthController controller({.probe_budget = 0});
  // Reading the weights takes 1 ms, a row of the verifier 0.2 ms, and a pass of the drafter too.
  ObserveCosts([](double) { return 0.2e-3; }, [](double rows) { return 1e-3 + 0.2e-3 * rows; },
               0.1e-3, &controller);
  AcceptanceEstimate acceptance = controller.NewEstimate(AcceptanceMode::kGreedy);
  for (int i = 0; i < 50; ++i) acceptance.Observe(JudgedChain(4, 3));
  // Returns the lengths of a round of two slots with these paces.
  const auto lengths = [&](double first, double second) {
    std::vector<DraftCandidate> slots(2);
    for (size_t i = 0; i < 2; ++i) {
      slots[i].acceptance = &acceptance;
      slots[i].serial = i + 1;
      slots[i].limit = 8;
      slots[i].context = 10;
      slots[i].remaining_tokens = 100;
      slots[i].pace = i == 0 ? first : second;
    }
    controller.Choose(slots, {});
    return std::vector<uint32_t>{slots[0].length, slots[1].length};
  };
  const std::vector<uint32_t> usual = lengths(0, 0);
  EXPECT_THAT(usual, Each(testing::Ge(2u)));
  EXPECT_THAT(lengths(20, 20), ElementsAre(0, 0));
  EXPECT_EQ(lengths(0, 0), usual) << "a hurried round says nothing about drafts";
  EXPECT_EQ(lengths(20, 0), usual) << "the pace of a slot is not known";
  EXPECT_EQ(lengths(1, 1), usual) << "no faster than plain decoding";
}

// ---------------------------------------------------------------- regimes

std::function<TrueCosts(uint64_t)> Always(const TrueCosts& costs) {
  return [costs](uint64_t) { return costs; };
}

// Reading the weights costs the same for all rows, and each row costs a constant time.
std::function<double(double)> Linear(double first, double each) {
  return [=](double rows) { return first + each * (rows - 1); };
}

// Reading the weights hides the cost of rows until computing takes longer.
std::function<double(double)> Saturating(double least, double each) {
  return [=](double rows) { return std::max(least, each * rows); };
}

TrueCosts SmallPair() { return {Linear(60e-6, 3e-6), Linear(300e-6, 20e-6), 250e-6, 250e-6}; }
// A 3B target and a 1B draft on a CPU, where a draft step is expensive.
TrueCosts DearDrafts() { return {Linear(97e-3, 7.6e-3), Linear(250e-3, 8e-3), 1e-3, 1e-3}; }
// The same on a GPU with a large target, where a draft step is cheap.
TrueCosts CheapDrafts() { return {Linear(2e-3, 10e-6), Linear(20e-3, 50e-6), 0.5e-3, 0.5e-3}; }
TrueCosts SaturatedVerifier() {
  return {Saturating(60e-6, 10e-6), Saturating(300e-6, 80e-6), 250e-6, 250e-6};
}

Simulation Streams(size_t count, double alpha, const TrueCosts& costs) {
  Simulation simulation;
  for (size_t i = 0; i < count; ++i) {
    simulation.slots.push_back({.agrees = AgreesWith(alpha, 3 + i), .output_tokens = 250});
  }
  simulation.costs = Always(costs);
  return simulation;
}

struct Best {
  double rate = 0;
  double plain_rate = 0;
  std::vector<uint32_t> lengths;
};

// Returns the best constant lengths. Slots of one kind have the same length.
Best BestFixed(const Simulation& simulation, const std::vector<size_t>& kinds) {
  Best best;
  best.lengths.assign(kinds.size(), 0);
  best.plain_rate = best.rate = Rate(RunFixed(simulation, best.lengths));
  const size_t num_kinds = *std::max_element(kinds.begin(), kinds.end()) + 1;
  std::vector<uint32_t> of_kind(num_kinds, 0);
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t kind = 0; kind < num_kinds; ++kind) {
      for (uint32_t length = 0; length <= simulation.longest; ++length) {
        std::vector<uint32_t> lengths = best.lengths;
        for (size_t i = 0; i < kinds.size(); ++i) {
          if (kinds[i] == kind) lengths[i] = length;
        }
        const double rate = Rate(RunFixed(simulation, lengths));
        if (rate <= best.rate * (1 + 1e-9)) continue;
        best.rate = rate;
        best.lengths = lengths;
        improved = true;
      }
    }
  }
  return best;
}

Best BestFixed(const Simulation& simulation) {
  return BestFixed(simulation, std::vector<size_t>(simulation.slots.size(), 0));
}

double Lost(double rate, double best) { return 1 - rate / best; }

// Returns the number of rounds from `from` on until a window of `width` rounds runs at `share` of
// `rate`.
size_t RoundsUntil(std::span<const SimulatedRound> rounds, size_t from, size_t width, double rate,
                   double share) {
  for (size_t i = from; i + width <= rounds.size(); ++i) {
    if (Rate(rounds.subspan(i, width)) >= share * rate) return i - from;
  }
  return rounds.size();
}

// ---------------------------------------------------------------- recorded traces

struct Recorded {
  std::vector<AcceptanceMode> modes;
  std::vector<std::string> bits;  // all have the same length
  TrueCosts costs;
};

Recorded ReadRecorded() {
  Recorded recorded;
  const std::map<std::string, AcceptanceMode> modes = {
      {"greedy", AcceptanceMode::kGreedy},
      {"reproducible", AcceptanceMode::kReproducible},
      {"sampled", AcceptanceMode::kSampled}};
  std::ifstream acceptance(std::string(kTraces) + "acceptance.txt");
  std::string mode, temperature, prompt, bits;
  while (acceptance >> mode >> temperature >> prompt >> bits) {
    recorded.modes.push_back(modes.at(mode));
    recorded.bits.push_back(bits);
  }
  std::ifstream costs(std::string(kTraces) + "costs.txt");
  std::vector<double> verify;  // seconds by draft length
  double draft_seconds = 0;
  double drafts = 0;
  double plain_overhead = 0;
  double drafted_overhead = 0;
  uint32_t length;
  double drafter, verifier, messages, router;
  while (costs >> length >> drafter >> verifier >> messages >> router) {
    verify.push_back(verifier);
    draft_seconds += drafter;
    drafts += length;
    (length == 0 ? plain_overhead : drafted_overhead) += messages + router;
  }
  const double lengths = static_cast<double>(verify.size()) - 1;
  recorded.costs.pass = Linear(draft_seconds / drafts, 0.05 * draft_seconds / drafts);
  recorded.costs.verify = [verify](double rows) {
    const size_t row = std::min(static_cast<size_t>(rows), verify.size() - 1);
    return verify[row - 1] + (rows - static_cast<double>(row)) * (verify[row] - verify[row - 1]);
  };
  recorded.costs.verify_overhead = plain_overhead;
  recorded.costs.propose_overhead = drafted_overhead / lengths - plain_overhead;
  return recorded;
}

// Runs all traces as the requests of one stream. Returns the share that is lost, compared with the
// best length for each request.
double LostOnTraces(Mistake mistake, double* speedup) {
  const Recorded recorded = ReadRecorded();
  const auto tokens = static_cast<uint32_t>(recorded.bits.at(0).size());
  Simulation simulation;
  simulation.slots = {{.agrees =
                           [&](uint64_t position) {
                             const std::string& bits =
                                 recorded.bits[position / tokens % recorded.bits.size()];
                             return bits[position % tokens] == '1';
                           },
                       .modes = recorded.modes,
                       .output_tokens = tokens}};
  simulation.costs = Always(recorded.costs);
  simulation.mistake = mistake;
  // Returns the seconds of each request.
  const auto seconds = [&](const std::vector<SimulatedRound>& rounds) {
    std::vector<double> sums(recorded.bits.size());
    double committed = 0;
    for (const SimulatedRound& round : rounds) {
      const auto request = static_cast<size_t>(committed) / tokens;
      if (request == sums.size()) break;
      sums[request] += round.seconds;
      committed += round.tokens;
    }
    EXPECT_GE(committed, tokens * sums.size());
    return sums;
  };
  simulation.rounds = tokens * recorded.bits.size();
  const std::vector<double> plain = seconds(RunFixed(simulation, {0}));
  std::vector<double> best = plain;
  for (uint32_t length = 1; length <= simulation.longest; ++length) {
    const std::vector<double> sums = seconds(RunFixed(simulation, {length}));
    for (size_t i = 0; i < sums.size(); ++i) best[i] = std::min(best[i], sums[i]);
  }
  const std::vector<double> chosen = seconds(RunController(simulation));
  const auto total = [](const std::vector<double>& sums) {
    return std::accumulate(sums.begin(), sums.end(), 0.0);
  };
  *speedup = total(plain) / total(chosen);
  return 1 - total(best) / total(chosen);
}

TEST(DraftLengthControllerTest, LosesLittleToTheBestLengthOfEachRecordedRequest) {
  double speedup;
  EXPECT_LE(LostOnTraces(Mistake::kNone, &speedup), kMostLost);
  EXPECT_GE(speedup, 1.1);
}

// ---------------------------------------------------------------- synthetic regimes

struct Regime {
  std::string name;
  size_t streams;
  double alpha;
  TrueCosts costs;
};

class RegimeTest : public testing::TestWithParam<Regime> {};

TEST_P(RegimeTest, LosesLittleToTheBestLengthAndLessIfDraftsCannotPay) {
  const Regime& regime = GetParam();
  const Simulation simulation = Streams(regime.streams, regime.alpha, regime.costs);
  const Best best = BestFixed(simulation);
  const double rate = Rate(RunController(simulation));
  const double lost = Lost(rate, best.rate);
  RecordProperty("lost", std::to_string(lost));
  const bool plain = best.lengths[0] == 0;
  EXPECT_LE(lost, plain ? kMostLostToPlain : kMostLost)
      << "the best fixed length is " << best.lengths[0];
  EXPECT_LE(Lost(rate, best.plain_rate), kMostLostToPlain);
}

std::vector<Regime> Regimes() {
  std::vector<Regime> regimes;
  for (double alpha : {0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.95}) {
    const std::string percent = std::to_string(static_cast<int>(100 * alpha + 0.5));
    regimes.push_back({"SmallPair" + percent, 1, alpha, SmallPair()});
    regimes.push_back({"DearDrafts" + percent, 1, alpha, DearDrafts()});
    regimes.push_back({"CheapDrafts" + percent, 1, alpha, CheapDrafts()});
  }
  for (size_t streams : {2, 8, 32}) {
    for (double alpha : {0.0, 0.6, 0.8, 0.95}) {
      const std::string percent = std::to_string(static_cast<int>(100 * alpha + 0.5));
      const std::string name = std::to_string(streams) + "Streams" + percent;
      regimes.push_back({"Saturated" + name, streams, alpha, SaturatedVerifier()});
      regimes.push_back({"CheapDrafts" + name, streams, alpha, CheapDrafts()});
    }
  }
  return regimes;
}

INSTANTIATE_TEST_SUITE_P(Costs, RegimeTest, testing::ValuesIn(Regimes()),
                         [](const auto& regime) { return regime.param.name; });

// ---------------------------------------------------------------- a busy machine

struct BusyRegime {
  std::string name;
  double alpha;
  OtherWork other_work;
};

class BusyRegimeTest : public testing::TestWithParam<BusyRegime> {};

// Each simulation is a server's first twelve requests. Drafting must neither end after a few
// unlucky interruptions, nor go on where it does not pay.
TEST_P(BusyRegimeTest, LosesLittleToTheBestOfFourLengthsInTheFirstRequests) {
  constexpr int kServers = 24;
  const BusyRegime& regime = GetParam();
  std::map<uint32_t, double> fixed;
  double chosen = 0;
  for (uint64_t server = 0; server < kServers; ++server) {
    Simulation simulation;
    simulation.slots = {{.agrees = AgreesWith(regime.alpha, server), .output_tokens = 100}};
    simulation.costs = Always({Linear(60e-6, 3e-6), Linear(200e-6, 15e-6), 120e-6, 120e-6});
    simulation.other_work = regime.other_work;
    simulation.seed = server;
    simulation.tokens = 1200;
    for (const uint32_t length : {0u, 2u, 4u, 6u}) {
      fixed[length] += 1 / Rate(RunFixed(simulation, {length}));
    }
    chosen += 1 / Rate(RunController(simulation));
  }
  double best = fixed.at(0);
  for (const auto& [length, sum] : fixed) best = std::min(best, sum);
  RecordProperty("lost", std::to_string(1 - best / chosen));
  EXPECT_LE(1 - best / chosen, 0.10);
  EXPECT_LE(1 - fixed.at(0) / chosen, 0.06);
}

std::vector<BusyRegime> BusyRegimes() {
  const std::vector<std::pair<std::string, OtherWork>> loads = {
      {"MessagesOftenWait", {0.5, 0.1, 4e-3}},
      {"MessagesSometimesWait", {0.2, 0.05, 4e-3}},
      {"PassesAreOftenInterrupted", {0.1, 0.3, 3e-3}},
      {"EverythingIsOftenInterrupted", {0.5, 0.5, 4e-3}},
      {"InterruptionsAreRareAndLong", {0.02, 0.02, 20e-3}},
  };
  std::vector<BusyRegime> regimes;
  for (const auto& [name, other_work] : loads) {
    for (const double alpha : {0.2, 0.5, 0.7, 0.8}) {
      const std::string percent = std::to_string(static_cast<int>(100 * alpha + 0.5));
      regimes.push_back({name + percent, alpha, other_work});
    }
  }
  return regimes;
}

INSTANTIATE_TEST_SUITE_P(OtherWork, BusyRegimeTest, testing::ValuesIn(BusyRegimes()),
                         [](const auto& regime) { return regime.param.name; });

TEST(DraftLengthControllerTest, GivesEachSlotOfABatchItsOwnLength) {
  Simulation simulation;
  std::vector<size_t> kinds;
  for (size_t i = 0; i < 8; ++i) {
    kinds.push_back(i % 2);
    simulation.slots.push_back(
        {.agrees = AgreesWith(i % 2 == 0 ? 0.95 : 0.2, i), .output_tokens = 500});
  }
  simulation.costs = Always({Linear(0.2e-3, 10e-6), Linear(2e-3, 100e-6), 0.2e-3, 0.2e-3});
  const Best best = BestFixed(simulation, kinds);
  ASSERT_GT(best.lengths[0], best.lengths[1]);
  EXPECT_LE(Lost(Rate(RunController(simulation)), best.rate), kMostLost);
}

TEST(DraftLengthControllerTest, LearnsCostsWithoutTheTimeOfTheFirstPass) {
  Simulation simulation = Streams(4, 0.8, CheapDrafts());
  simulation.reports_catch_up = false;
  EXPECT_LE(Lost(Rate(RunController(simulation)), BestFixed(simulation).rate), kMostLost);
}

TEST(DraftLengthControllerTest, TheSameCallsGiveTheSameLengths) {
  const Simulation simulation = Streams(3, 0.7, SmallPair());
  const auto a = RunController(simulation);
  const auto b = RunController(simulation);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i].lengths, b[i].lengths) << "round " << i;
}

// ---------------------------------------------------------------- changes

// A stream whose drafts are good, then useless, then good, for at most 1,000 rounds each.
Simulation Switching() {
  Simulation simulation;
  simulation.slots = {{.agrees = [](uint64_t position) {
    const bool good = position < 3000 || position >= 4000;
    return good && Uniform(5, position) < 0.9;
  }}};
  simulation.costs = Always(SmallPair());
  simulation.rounds = 3000;
  return simulation;
}

// Returns the first round that begins at this place or later.
size_t RoundAt(std::span<const SimulatedRound> rounds, double position) {
  double committed = 0;
  for (size_t i = 0; i < rounds.size(); ++i) {
    if (committed >= position) return i;
    committed += rounds[i].tokens;
  }
  return rounds.size();
}

constexpr size_t kRoundsUntilPlain = 30;
constexpr size_t kRoundsUntilDrafting = 150;

TEST(DraftLengthControllerTest, StopsDraftingSoonAfterDraftsTurnBad) {
  const auto rounds = RunController(Switching());
  const double plain = Rate(RunFixed(Switching(), {0}));
  const size_t turned = RoundAt(rounds, 3000);
  EXPECT_LE(RoundsUntil(rounds, turned, 20, plain, 0.9), kRoundsUntilPlain);
}

// Returns the largest number of rounds, over several texts, until it drafts as before after 1,000
// plain tokens.
size_t SlowestReturn(Mistake mistake) {
  size_t slowest = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Simulation simulation = Switching();
    simulation.mistake = mistake;
    simulation.slots[0].agrees = [seed](uint64_t position) {
      const bool good = position < 3000 || position >= 4000;
      return good && Uniform(100 + seed, position) < 0.9;
    };
    const auto rounds = RunController(simulation);
    const double drafting = Rate(std::span(rounds).first(RoundAt(rounds, 3000)).subspan(100));
    const size_t turned = RoundAt(rounds, 4000);
    slowest = std::max(slowest, RoundsUntil(rounds, turned, 50, drafting, 0.9));
  }
  return slowest;
}

TEST(DraftLengthControllerTest, DraftsAgainSoonAfterDraftsTurnGood) {
  EXPECT_LE(SlowestReturn(Mistake::kNone), kRoundsUntilDrafting);
}

TEST(DraftLengthControllerTest, ProbingCostsLittleIfDraftsAreAlwaysWrong) {
  Simulation simulation = Streams(1, 0, SmallPair());
  simulation.slots[0].output_tokens = 1u << 30;
  simulation.rounds = 20000;
  const auto rounds = RunController(simulation);
  const double plain = Rate(RunFixed(simulation, {0}));
  EXPECT_LE(Lost(Rate(std::span(rounds).subspan(100)), plain), 0.01);
  const auto probes = [&](size_t begin, size_t count) {
    return std::ranges::count_if(std::span(rounds).subspan(begin, count),
                                 [](const SimulatedRound& round) { return round.lengths[0] > 0; });
  };
  EXPECT_GE(probes(100, 1000), 5) << "it probes";
  EXPECT_LE(probes(5000, 15000), 32) << "it probes less and less";
  EXPECT_GE(probes(5000, 15000), 25) << "it never gives up";
}

// The costs change in round 1,000.
Simulation CostJump(const TrueCosts& before, const TrueCosts& after, double alpha) {
  Simulation simulation = Streams(1, alpha, before);
  simulation.costs = [=](uint64_t round) { return round < 1000 ? before : after; };
  simulation.rounds = 2000;
  return simulation;
}

// Returns the share that is lost from round 1,000 on.
double LostAfterJump(Simulation simulation, Mistake mistake) {
  simulation.mistake = mistake;
  double best = 0;
  for (uint32_t length = 0; length <= simulation.longest; ++length) {
    const auto rounds = RunFixed(simulation, {length});
    best = std::max(best, Rate(std::span(rounds).subspan(1000)));
  }
  const auto rounds = RunController(simulation);
  return Lost(Rate(std::span(rounds).subspan(1000)), best);
}

Simulation DrafterTurnsSlow() {
  TrueCosts slow = SmallPair();
  slow.pass = Linear(1e-3, 10e-6);
  return CostJump(SmallPair(), slow, 0.8);
}

TEST(DraftLengthControllerTest, FollowsCostsThatJump) {
  EXPECT_LE(LostAfterJump(DrafterTurnsSlow(), Mistake::kNone), kMostLost);
  TrueCosts slow = SmallPair();
  slow.pass = Linear(1e-3, 10e-6);
  // A drafter that did not pay is hardly ever probed, so it is noticed late that the drafter became
  // fast.
  EXPECT_LE(LostAfterJump(CostJump(slow, SmallPair(), 0.8), Mistake::kNone), 0.25);
  TrueCosts dear_rows = SmallPair();
  dear_rows.verify = Linear(300e-6, 400e-6);
  EXPECT_LE(LostAfterJump(CostJump(SmallPair(), dear_rows, 0.8), Mistake::kNone), kMostLost);
}

// ---------------------------------------------------------------- planted mistakes

TEST(DraftLengthControllerTest, AVerifierWhoseRowsAreIgnoredIsNoticed) {
  Simulation simulation = Streams(8, 0.8, SaturatedVerifier());
  simulation.mistake = Mistake::kIgnoresRows;
  EXPECT_GT(Lost(Rate(RunController(simulation)), BestFixed(simulation).rate), 2 * kMostLost);
}

TEST(DraftLengthControllerTest, OverheadsThatAreIgnoredAreNoticed) {
  Simulation simulation = Streams(1, 0.5, SmallPair());
  simulation.mistake = Mistake::kIgnoresOverheads;
  EXPECT_GT(Lost(Rate(RunController(simulation)), BestFixed(simulation).rate), kMostLostToPlain);
}

TEST(DraftLengthControllerTest, ProbesThatAreMissingAreNoticed) {
  EXPECT_GT(SlowestReturn(Mistake::kNeverProbes), 2 * kRoundsUntilDrafting);
}

TEST(DraftLengthControllerTest, APriorThatIsNeverOverruledIsNoticed) {
  Simulation simulation = Streams(1, 0.2, SmallPair());
  simulation.mistake = Mistake::kBelievesThePrior;
  EXPECT_GT(Lost(Rate(RunController(simulation)), BestFixed(simulation).rate), 2 * kMostLost);
  double speedup;
  EXPECT_GT(LostOnTraces(Mistake::kBelievesThePrior, &speedup), kMostLost);
}

TEST(DraftLengthControllerTest, CostsThatAreLearnedOnceAreNoticed) {
  EXPECT_GT(LostAfterJump(DrafterTurnsSlow(), Mistake::kNeverForgetsCosts), 2 * kMostLost);
}

// Long prompts and short answers: a catch-up of the drafter is never earned back.
Simulation LongPrompts() {
  Simulation simulation = Streams(1, 0.8, DearDrafts());
  simulation.slots[0].prompt_tokens = 400;
  simulation.slots[0].output_tokens = 12;
  return simulation;
}

TEST(DraftLengthControllerTest, ACatchUpThatIsNotEarnedBackIsNotMade) {
  const Simulation simulation = LongPrompts();
  EXPECT_LE(Lost(Rate(RunController(simulation)), BestFixed(simulation).rate), kMostLostToPlain);
}

TEST(DraftLengthControllerTest, CatchUpsThatAreForgottenAreNoticed) {
  Simulation simulation = LongPrompts();
  simulation.mistake = Mistake::kForgetsCatchUp;
  EXPECT_GT(Lost(Rate(RunController(simulation)), BestFixed(simulation).rate), 2 * kMostLost);
}

TEST(DraftLengthControllerTest, IfDraftsGainLittlePlainRoundsAreSometimesMeasured) {
  // Drafts of one token gain a tenth, and later a half.
  const auto longest_without_plain = [](double row_seconds) {
    Simulation simulation =
        Streams(1, 0.9, {Linear(100e-6, 1e-6), Linear(300e-6, row_seconds), 50e-6, 50e-6});
    simulation.slots[0].output_tokens = 100000;
    simulation.noise = 0.02;
    simulation.spikes = 0;
    simulation.longest = 1;
    size_t longest = 0;
    size_t current = 0;
    const std::vector<SimulatedRound> rounds = RunController(simulation);
    for (const SimulatedRound& round : std::span(rounds).subspan(200)) {
      current = round.lengths[0] > 0 ? current + 1 : 0;
      longest = std::max(longest, current);
    }
    return longest;
  };
  const size_t little = longest_without_plain(120e-6);
  EXPECT_LE(little, 64u);
  EXPECT_GE(little, 8u) << "it drafts in between";
  EXPECT_GE(longest_without_plain(5e-6), 1000u);
}

// ---------------------------------------------------------------- single choices

class ChoiceTest : public testing::Test {
 protected:
  ChoiceTest() : estimate_(controller_.NewEstimate(AcceptanceMode::kGreedy)) {}

  // Costs without noise, measured in many rounds of batches of up to 8 slots.
  void Measure(const TrueCosts& costs) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      for (uint32_t slots = 1; slots <= 8; ++slots) {
        for (uint32_t length : {0u, 1u, 2u, 4u, 8u}) {
          const std::vector<uint32_t> lengths(slots, length);
          ProposeCost propose;
          propose.draft_lengths = lengths;
          propose.catch_up_rows = slots;
          propose.catch_up_seconds = costs.pass(slots);
          propose.compute_seconds = length * costs.pass(slots);
          propose.overhead_seconds = costs.propose_overhead;
          if (length > 0) controller_.ObservePropose(propose);
          VerifyCost verify;
          verify.rows = slots * (1 + length);
          verify.compute_seconds = costs.verify(verify.rows);
          verify.overhead_seconds = costs.verify_overhead;
          controller_.ObserveVerify(verify);
        }
      }
    }
  }
  void Accept(uint32_t drafted, uint32_t accepted, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      controller_.ObserveDraft(1, AcceptanceMode::kGreedy, JudgedChain(drafted, accepted), drafted,
                               &estimate_);
    }
  }
  DraftCandidate Candidate() const {
    DraftCandidate candidate;
    candidate.acceptance = &estimate_;
    candidate.serial = 1;
    candidate.limit = 8;
    candidate.remaining_tokens = 1000;
    return candidate;
  }
  std::vector<uint32_t> Choose(std::vector<DraftCandidate> candidates, const DraftBatch& batch) {
    controller_.Choose(candidates, batch);
    std::vector<uint32_t> lengths;
    for (const DraftCandidate& candidate : candidates) lengths.push_back(candidate.length);
    return lengths;
  }

  DraftLengthController controller_{DraftLengthOptions()};
  AcceptanceEstimate estimate_;
};

TEST_F(ChoiceTest, TheInitialLengthIsTakenBeforeAnythingIsMeasured) {
  EXPECT_THAT(Choose({Candidate()}, {}), ElementsAre(4));
}

TEST_F(ChoiceTest, TheFirstRoundOfManySlotsIsNotFilledWithDrafts) {
  const std::vector<uint32_t> lengths = Choose(std::vector(32, Candidate()), {});
  EXPECT_LE(std::accumulate(lengths.begin(), lengths.end(), 0u), 16u);
}

TEST_F(ChoiceTest, AFixedLengthIsTakenAtAnyCost) {
  TrueCosts dear = SmallPair();
  dear.pass = Linear(10e-3, 0);
  Measure(dear);
  Accept(4, 0, 20);
  DraftCandidate fixed = Candidate();
  fixed.fixed = 6;
  EXPECT_THAT(Choose({Candidate(), fixed}, {}), ElementsAre(0, 6));
  fixed.limit = 3;
  EXPECT_THAT(Choose({fixed}, {}), ElementsAre(3));
}

TEST_F(ChoiceTest, AFixedLengthOfZeroIsTakenAndNeverProbed) {
  Measure(CheapDrafts());
  Accept(8, 8, 20);
  DraftCandidate fixed = Candidate();
  fixed.fixed = 0;
  for (int round = 0; round < 500; ++round) {
    ASSERT_THAT(Choose({fixed}, {}), ElementsAre(0));
    Accept(0, 0, 1);
  }
}

TEST_F(ChoiceTest, RequestsOfFixedLengthDoNotCauseMoreProbesOfOthers) {
  Measure(SmallPair());
  Accept(4, 0, 60);
  DraftCandidate fixed = Candidate();
  fixed.fixed = 0;
  const auto probes = [&](bool with_fixed) {
    int count = 0;
    for (int request = 0; request < 100; ++request) {
      for (int round = 0; round < 64; ++round) {
        const uint32_t length = Choose({Candidate()}, {})[0];
        count += length > 0 ? 1 : 0;
        Accept(length, 0, 1);
      }
      for (int round = 0; with_fixed && round < 64; ++round) {
        EXPECT_THAT(Choose({fixed}, {}), ElementsAre(0));
        Accept(0, 0, 1);
      }
    }
    return count;
  };
  const int alone = probes(false);
  EXPECT_GT(alone, 10);
  EXPECT_LE(probes(true), alone);
}

TEST_F(ChoiceTest, ALimitIsKept) {
  Measure(CheapDrafts());
  Accept(8, 8, 20);
  DraftCandidate near_the_end = Candidate();
  near_the_end.limit = 2;
  DraftCandidate at_the_end = Candidate();
  at_the_end.limit = 0;
  EXPECT_THAT(Choose({Candidate(), near_the_end, at_the_end}, {}), ElementsAre(8, 2, 0));
}

TEST_F(ChoiceTest, SiblingsAreDrawnIfRowsAreCheap) {
  Measure(CheapDrafts());
  Accept(8, 4, 20);
  std::vector<DraftCandidate> candidates = {Candidate()};
  candidates[0].max_nodes = 16;
  controller_.Choose(candidates, {});
  const auto num_siblings = [&] {
    return std::accumulate(candidates[0].num_siblings.begin(), candidates[0].num_siblings.end(),
                           0u);
  };
  EXPECT_GE(candidates[0].num_siblings.at(0), 1u);
  EXPECT_LE(candidates[0].num_siblings.size(), candidates[0].length);
  EXPECT_LE(candidates[0].length + num_siblings(), 16u);
  candidates[0].max_nodes = candidates[0].length + 1;
  candidates[0].num_siblings.clear();
  controller_.Choose(candidates, {});
  EXPECT_LE(candidates[0].length + num_siblings(), candidates[0].max_nodes);
  candidates[0].max_nodes = 0;
  candidates[0].num_siblings.clear();
  controller_.Choose(candidates, {});
  EXPECT_EQ(num_siblings(), 0u);
}

TEST_F(ChoiceTest, ATreeOfAFixedDepthHasAsManySiblingsAsItMay) {
  std::vector<DraftCandidate> candidates = {Candidate()};
  candidates[0].fixed = 2;
  candidates[0].max_nodes = 7;
  for (const bool measured : {false, true}) {
    if (measured) Measure(SmallPair());
    candidates[0].num_siblings.clear();
    controller_.Choose(candidates, {});
    EXPECT_EQ(candidates[0].length, 2u);
    EXPECT_THAT(candidates[0].num_siblings, ElementsAre(3, 2));
  }
}

TEST_F(ChoiceTest, WhereSiblingsDoNotPaySomeAreTriedNowAndThen) {
  TrueCosts dear_rows = SmallPair();
  dear_rows.verify = Linear(1e-3, 0.1e-3);
  Measure(dear_rows);
  Accept(8, 7, 40);
  int drafted = 0;
  int tried = 0;
  std::set<uint32_t> widths;
  std::mt19937 random(1);
  const auto run = [&](int rounds, bool accepts_siblings) {
    drafted = tried = 0;
    for (int round = 0; round < rounds; ++round) {
      std::vector<DraftCandidate> candidates(3, Candidate());
      for (DraftCandidate& candidate : candidates) candidate.max_nodes = 12;
      candidates[2].fixed = 2;  // a tree of a fixed depth keeps nobody from trials
      controller_.Choose(candidates, {});
      for (const DraftCandidate& candidate : std::span(candidates).first(2)) {
        if (candidate.length == 0) continue;
        ++drafted;
        const uint32_t width = candidate.num_siblings.empty() ? 0 : candidate.num_siblings[0];
        JudgedPosition judged{.num_children = 1 + width, .accepted = random() % 5 < 3 ? 0 : -1};
        if (width > 0) {
          ++tried;
          widths.insert(width);
          if (judged.accepted < 0 && accepts_siblings) judged.accepted = 1;
        }
        controller_.ObserveDraft(1, AcceptanceMode::kGreedy, std::span(&judged, 1),
                                 candidate.length, &estimate_);
      }
    }
  };
  run(1000, false);
  EXPECT_GT(drafted, 1000);
  EXPECT_GE(tried, 10);
  EXPECT_LE(tried, 1000 / 64);
  EXPECT_THAT(widths, ElementsAre(1, 2, 3));
  run(8000, true);
  EXPECT_GT(tried, 2000) << "the router has learned that they pay";
}

TEST_F(ChoiceTest, NoCandidatesIsNoChoice) { EXPECT_THAT(Choose({}, {}), ElementsAre()); }

TEST_F(ChoiceTest, NothingIsDraftedIfARowCostsTheSameAsARound) {
  Measure({Linear(60e-6, 3e-6), [](double rows) { return 300e-6 * rows; }, 100e-6, 100e-6});
  Accept(8, 7, 20);
  EXPECT_THAT(Choose(std::vector(4, Candidate()), {}), Each(Eq(0u)));
}

TEST_F(ChoiceTest, ChangesThatMakeDraftsPayEndThePauseOfPlanning) {
  const TrueCosts dear{Linear(200e-6, 3e-6), Linear(300e-6, 20e-6), 250e-6, 250e-6};
  const AcceptanceEstimate unknown = controller_.NewEstimate(AcceptanceMode::kSampled);
  DraftCandidate other = Candidate();
  other.serial = 2;
  other.acceptance = &unknown;
  const auto rest = [&] {
    Measure(dear);
    Accept(4, 0, 40);
    EXPECT_THAT(Choose({Candidate()}, {}), ElementsAre(0));
    EXPECT_THAT(Choose({Candidate()}, {}), ElementsAre(0));
  };
  rest();
  Measure(CheapDrafts());
  Accept(0, 0, 1);
  EXPECT_THAT(Choose({other}, {}), ElementsAre(testing::Gt(0u))) << "another request";
  rest();
  Accept(8, 8, 60);
  Measure(CheapDrafts());
  EXPECT_THAT(Choose({Candidate()}, {}), ElementsAre(testing::Gt(0u))) << "drafts are accepted";
}

TEST_F(ChoiceTest, DraftsAreLongerIfTheyRunBesideAnotherCohort) {
  const TrueCosts costs = {Linear(200e-6, 3e-6), Linear(2e-3, 10e-6), 50e-6, 50e-6};
  Measure(costs);
  for (int i = 0; i < 20; ++i) {
    for (uint32_t accepted : {1u, 2u, 3u, 4u, 8u}) Accept(8, accepted, 1);
  }
  const uint32_t alone = Choose({Candidate()}, {})[0];
  const uint32_t beside = Choose({Candidate()}, {.overlapped = true})[0];
  EXPECT_GT(beside, alone);
}

TEST_F(ChoiceTest, APromptInTheBatchDoesNotMakeDraftsLookFree) {
  // The time of the prompt is spent in any case. If it counted as time of the round, it would hide
  // the cost of drafts, which gain little here and take long.
  const TrueCosts costs = {Linear(400e-6, 3e-6), Linear(300e-6, 100e-6), 100e-6, 100e-6};
  Measure(costs);
  for (uint32_t rows : {64u, 128u, 256u, 512u}) {
    VerifyCost verify;
    verify.rows = rows;
    verify.prompt_rows = rows - 1;
    verify.compute_seconds = costs.verify(rows);
    verify.overhead_seconds = costs.verify_overhead;
    for (int i = 0; i < 20; ++i) controller_.ObserveVerify(verify);
  }
  Accept(4, 1, 40);
  EXPECT_THAT(Choose({Candidate()}, {}), ElementsAre(0));
  EXPECT_THAT(Choose({Candidate()}, {.prompt_rows = 511}), ElementsAre(0));
}

TEST_F(ChoiceTest, DraftersCatchUpBesidePromptsThatNeverEnd) {
  Measure(CheapDrafts());
  Accept(8, 8, 40);
  DraftBatch prompts;
  prompts.prompt_rows = 4;
  DraftCandidate close = Candidate();
  close.drafter_lack = 3;
  DraftCandidate far = Candidate();
  far.serial = 2;
  far.drafter_lack = 30;
  EXPECT_THAT(Choose({close, far}, prompts), ElementsAre(testing::Gt(0u), 0));
  std::vector<uint32_t> lengths;
  for (int round = 0; round < 8; ++round) lengths = Choose({close, far}, prompts);
  EXPECT_THAT(lengths, Each(testing::Gt(0u)));
}

TEST_F(ChoiceTest, SlotsWhosePromptsAreBeingFedAlsoWaitForDrafts) {
  Measure(CheapDrafts());
  Accept(8, 8, 40);
  EXPECT_THAT(Choose({Candidate()}, {.prompt_rows = 4, .prompt_slots = 1}), Each(testing::Gt(0u)));
  EXPECT_THAT(Choose({Candidate()}, {.prompt_rows = 4, .prompt_slots = 400}), ElementsAre(0));
}

TEST_F(ChoiceTest, NothingIsProbedBesideAPromptThatWillEnd) {
  Measure(SmallPair());
  Accept(4, 0, 60);
  int probes = 0;
  int beside_prompts = 0;
  for (int round = 0; round < 2000; ++round) {
    const bool prompt = round % 5 > 0;
    const uint32_t length =
        Choose({Candidate()}, {.prompt_rows = prompt ? 64u : 0u, .prompt_slots = prompt})[0];
    (prompt ? beside_prompts : probes) += length > 0 ? 1 : 0;
    Accept(length, 0, 1);
  }
  EXPECT_EQ(beside_prompts, 0);
  EXPECT_GT(probes, 3);
}

TEST_F(ChoiceTest, ATokenIsNotWorthTheTimeOfPromptsBesideIt) {
  // Otherwise the earnings of probes beside prompts would pay for many useless probes.
  Measure(SmallPair());
  Accept(4, 0, 60);
  const AcceptanceEstimate unlucky = estimate_;
  const auto earned = [&](const DraftBatch& batch) {
    const double before = controller_.credit_seconds();
    for (int round = 0; round < 1000; ++round) {
      const uint32_t length = Choose({Candidate()}, batch)[0];
      Accept(length, length, 1);
      estimate_ = unlucky;  // otherwise the slot would draft
    }
    return controller_.credit_seconds() - before;
  };
  const double alone = earned({});
  ASSERT_GT(alone, 0);
  EXPECT_LE(earned({.prompt_rows = 64, .prompt_slots = 1}), 3 * alone);
}

TEST_F(ChoiceTest, PlainSlotsInTheBatchCountToo) {
  // One more token for one slot is much if the slot is alone, but little beside 31 slots that wait
  // for it.
  Measure({Linear(300e-6, 3e-6), Linear(300e-6, 10e-6), 100e-6, 100e-6});
  Accept(8, 7, 20);
  EXPECT_THAT(Choose({Candidate()}, {}), Each(testing::Gt(0u)));
  EXPECT_THAT(Choose({Candidate()}, {.plain_rows = 31}), ElementsAre(0));
}

TEST_F(ChoiceTest, ALongCatchUpIsMadeByARequestThatGoesOnLongEnough) {
  const TrueCosts costs = {Linear(1e-3, 100e-6), Linear(5e-3, 100e-6), 100e-6, 100e-6};
  Measure(costs);
  for (uint32_t rows : {100u, 200u, 400u}) {
    const std::vector<uint32_t> length = {1};
    ProposeCost propose;
    propose.draft_lengths = length;
    propose.catch_up_rows = rows;
    propose.catch_up_seconds = propose.compute_seconds = costs.pass(rows);
    propose.overhead_seconds = costs.propose_overhead;
    for (int i = 0; i < 20; ++i) controller_.ObservePropose(propose);
  }
  Accept(4, 3, 20);
  DraftCandidate late = Candidate();
  late.drafter_lack = 400;
  late.remaining_tokens = 8;
  EXPECT_THAT(Choose({late}, {}), ElementsAre(0));
  late.remaining_tokens = 1000;
  EXPECT_THAT(Choose({late}, {}), Each(testing::Gt(0u)));
}

TEST_F(ChoiceTest, ManySlotsCatchUpTogetherIfOneAloneWouldNotPay) {
  Measure({Linear(4e-3, 10e-6), Linear(5e-3, 100e-6), 100e-6, 100e-6});
  Accept(4, 3, 20);
  DraftCandidate late = Candidate();
  late.drafter_lack = 10;
  EXPECT_THAT(Choose({late}, {.plain_rows = 7}), ElementsAre(0));
  std::vector<DraftCandidate> slots(8, late);
  // They catch up in steps: each step adds the number of slots that already draft.
  for (const size_t drafting : {2u, 4u, 8u}) {
    const std::vector<uint32_t> lengths = Choose(slots, {});
    EXPECT_EQ(lengths.size() - std::count(lengths.begin(), lengths.end(), 0u), drafting);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (lengths[i] > 0) slots[i].drafter_lack = 1;
    }
  }
}

TEST_F(ChoiceTest, AfterCatchUpsInVainDraftsMustPromiseMoreForSomeTime) {
  // Drafts of one token seem to gain 9%, but drafters become slow as soon as they have caught up.
  const auto with_pass_of = [](double seconds) {
    return TrueCosts{Linear(seconds, 5e-6), Linear(4e-3, 1.2e-3), 100e-6, 100e-6};
  };
  Accept(1, 1, 40);
  DraftCandidate late = Candidate();
  late.limit = 1;
  late.drafter_lack = 60;
  const std::vector<DraftCandidate> slots(8, late);
  const auto drafts = [&] {
    const std::vector<uint32_t> lengths = Choose(slots, {});
    return std::any_of(lengths.begin(), lengths.end(), [](uint32_t length) { return length > 0; });
  };
  int in_vain = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    Measure(with_pass_of(1e-3));
    if (!drafts()) break;
    ++in_vain;
    Measure(with_pass_of(20e-3));
    EXPECT_FALSE(drafts());
  }
  EXPECT_GE(in_vain, 2);
  EXPECT_LE(in_vain, 5);
  // A much larger promise is believed.
  Measure({Linear(1e-3, 5e-6), Linear(4e-3, 100e-6), 100e-6, 100e-6});
  EXPECT_TRUE(drafts());
}

}  // namespace
}  // namespace tandem
