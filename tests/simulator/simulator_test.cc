// Tests that many seeds break no invariant, and that runs can be repeated.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/simulator/world.h"

namespace tandem::simulator {
namespace {

constexpr uint64_t kNumSeeds = 10000;

struct Survey {
  std::vector<Finding> findings;
  Sights sights;
};

const Survey& AllSeeds() {
  static const Survey survey = [] {
    Survey all;
    std::mutex mutex;
    std::atomic<uint64_t> next = 0;
    const auto work = [&] {
      for (uint64_t seed = next++; seed < kNumSeeds; seed = next++) {
        const RunResult result = RunSeed(seed);
        const std::lock_guard lock(mutex);
        all.sights.Add(result.sights);
        if (result.finding.has_value()) all.findings.push_back(*result.finding);
      }
    };
    std::thread other(work);
    work();
    other.join();
    return all;
  }();
  return survey;
}

TEST(SimulatorTest, TenThousandSeedsBreakNoInvariant) {
  for (const Finding& finding : AllSeeds().findings) {
    ADD_FAILURE() << finding.invariant << ": " << finding.what
                  << "\nto see it: tests/simulate --seed " << finding.seed << " --verbose";
  }
}

// A run without findings means little if the scenarios do not reach every situation.
TEST(SimulatorTest, TenThousandSeedsReachEverySituation) {
  for (size_t i = 0; i < kSightNames.size(); ++i) {
    EXPECT_GE(AllSeeds().sights.counts[i], 100u) << kSightNames[i];
  }
}

TEST(SimulatorTest, ASeedGivesTheSameRunEachTime) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::string first;
    std::string second;
    const RunResult traced = RunSeed(seed, PlantedBug::kNone, &first);
    RunSeed(seed, PlantedBug::kNone, &second);
    EXPECT_EQ(first, second) << seed;
    EXPECT_GT(first.size(), 1000u) << seed;
    EXPECT_EQ(traced.digest, RunSeed(seed).digest) << seed;
    EXPECT_NE(traced.digest, RunSeed(seed + 1).digest) << seed;
  }
}

TEST(SimulatorTest, TheTraceEndsWithTheBrokenInvariant) {
  std::string trace;
  const RunResult result = RunSeed(0, PlantedBug::kFinishTwice, &trace);
  ASSERT_TRUE(result.finding.has_value());
  EXPECT_NE(trace.find("! " + result.finding->what), std::string::npos);
}

}  // namespace
}  // namespace tandem::simulator
