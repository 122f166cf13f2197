// Runs the simulator over many seeds, or over one seed with its trace.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/simulator/world.h"

namespace tandem::simulator {
namespace {

void Print(const Finding& finding, const std::string& bug) {
  std::printf("seed %llu: %s: %s (at %.5f s)\n  simulate --seed %llu --verbose%s%s\n",
              static_cast<unsigned long long>(finding.seed), finding.invariant.c_str(),
              finding.what.c_str(), finding.at, static_cast<unsigned long long>(finding.seed),
              bug.empty() ? "" : " --bug ", bug.c_str());
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Simulates routers, workers, network and clients by seed, and checks the invariants "
      "at each step");
  uint64_t num_seeds = 10000;
  uint64_t from = 0;
  uint64_t seed = 0;
  unsigned num_threads = 1;
  bool verbose = false;
  std::string bug_name;
  app.add_option("--seeds", num_seeds, "How many seeds")->capture_default_str();
  app.add_option("--from", from, "The first seed")->capture_default_str();
  const CLI::Option* one = app.add_option("--seed", seed, "This one only");
  app.add_option("--threads", num_threads, "Seeds at once")
      ->check(CLI::Range(1u, 256u))
      ->capture_default_str();
  app.add_flag("--verbose", verbose, "Print what happens (with --seed)")->needs("--seed");
  std::vector<std::string> names;
  for (const PlantedBugName& planted : PlantedBugs()) names.emplace_back(planted.name);
  app.add_option("--bug", bug_name, "Plant this bug")->check(CLI::IsMember(names));
  CLI11_PARSE(app, argc, argv);

  PlantedBug bug = PlantedBug::kNone;
  for (const PlantedBugName& planted : PlantedBugs()) {
    if (planted.name == bug_name) bug = planted.bug;
  }
  if (one->count() > 0) {
    std::string trace;
    const RunResult result = RunSeed(seed, bug, verbose ? &trace : nullptr);
    std::fputs(trace.c_str(), stdout);
    std::printf("seed %llu: %d steps, digest %016llx\n", static_cast<unsigned long long>(seed),
                result.num_steps, static_cast<unsigned long long>(result.digest));
    if (result.finding.has_value()) Print(*result.finding, bug_name);
    return result.finding.has_value() ? 1 : 0;
  }

  std::atomic<uint64_t> next = from;
  std::atomic<uint64_t> num_findings = 0;
  std::atomic<uint64_t> num_steps = 0;
  Sights sights;
  std::mutex mutex;
  const auto work = [&] {
    for (uint64_t mine = next++; mine < from + num_seeds; mine = next++) {
      const RunResult result = RunSeed(mine, bug);
      num_steps += static_cast<uint64_t>(result.num_steps);
      const std::lock_guard lock(mutex);
      sights.Add(result.sights);
      if (!result.finding.has_value()) continue;
      if (++num_findings <= 20) Print(*result.finding, bug_name);
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kSightNames.size(); ++i) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(sights.counts[i]),
                std::string(kSightNames[i]).c_str());
  }
  std::printf("%llu seeds from %llu, %llu steps: %llu findings\n",
              static_cast<unsigned long long>(num_seeds), static_cast<unsigned long long>(from),
              static_cast<unsigned long long>(num_steps.load()),
              static_cast<unsigned long long>(num_findings.load()));
  return num_findings > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tandem::simulator

int main(int argc, char** argv) { return tandem::simulator::Main(argc, argv); }
