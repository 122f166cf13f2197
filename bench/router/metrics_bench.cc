// Measures the cost of metrics. It runs the router's engine with RouterMetrics and without, in
// interleaved pairs, over toy workers that take no time. The result is given as a share of a round
// of the embedded pair in one process. It also measures the time of a worker's metrics after each
// command, as such a share, and the cost of a scrape while many slots run.
//
//   bench_metrics [--pairs 20] [--slots 1000] [--json FILE]

#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/one_process.h"
#include "bench/support/paired_ratio.h"
#include "kernels/cpu.h"
#include "services/router/watch/router_metrics.h"
#include "services/worker/worker_metrics.h"
#include "services/worker/worker_model.h"
#include "tests/router/engine_driver.h"

namespace tandem::bench {
namespace {

constexpr int kStreams = 8;
constexpr int kTokens = 256;
constexpr int kScrapes = 50;
constexpr int kRefreshes = 10000;
constexpr double kGoal = 0.01;  // largest share of a round of the embedded pair
constexpr char kTarget[] = TANDEM_SOURCE_DIR "/models/tales/target";
constexpr char kDraft[] = TANDEM_SOURCE_DIR "/models/tales/draft";

struct Options {
  int pairs = 20;
  int slots = 1000;
  std::string json;
};

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Counts rounds.
class RoundCounter final : public EngineObserver {
 public:
  void OnRound(const RoundSeconds&) override { ++num_rounds; }
  int num_rounds = 0;
};

EngineOptions WithDrafts(uint32_t max_slots) {
  EngineOptions options;
  options.draft_length = 4;
  options.workers.max_slots = max_slots;
  return options;
}

// Returns the processor seconds of drafted streams from the first request to the last token.
double Serve(EngineObserver* observer) {
  testing::EngineDriver driver(WithDrafts(kStreams), {}, observer);
  driver.Start();
  const double begin = ThreadSeconds();
  for (int i = 0; i < kStreams; ++i) driver.Send(driver.Request({1, 2, 3, 4 + i}, kTokens));
  if (!driver.Run()) throw std::runtime_error("the streams did not end");
  return ThreadSeconds() - begin;
}

double EmbeddedRoundSeconds() {
  const auto one =
      OneProcess::Start({.target = kTarget, .draft = kDraft, .threads = DefaultThreads()});
  if (!one.ok()) throw std::runtime_error(std::string(one.status().message()));
  std::vector<double> rounds;
  for (int run = 0; run < 20; ++run) {
    v1::GenerateRequest request;
    for (int i = 0; i < 16; ++i) request.mutable_prompt_token_ids()->add_ids(300 + i);
    request.mutable_sampling_params()->set_temperature(0);
    request.mutable_sampling_params()->set_max_tokens(64);
    request.mutable_sampling_params()->set_ignore_eos(true);
    request.mutable_speculation()->set_draft_length(4);
    const auto response = (*one)->Generate(request);
    if (!response.ok()) throw std::runtime_error(std::string(response.status().message()));
    const v1::SpeculationStats& stats = response->completion().speculation();
    const int num_rounds = stats.num_drafts() + stats.num_plain_rounds() - 1;
    rounds.push_back(response->completion().timings().decode_seconds() / std::max(1, num_rounds));
  }
  return Median(rounds);
}

// Returns the seconds that a worker's computing thread spends after each command. A round has one
// command for each worker.
double WorkerRefreshSeconds(const std::string& worker, const std::string& folder) {
  WorkerModelOptions options;
  options.folder = folder;
  const auto model = WorkerModel::Load(options);
  if (!model.ok()) throw std::runtime_error(std::string(model.status().message()));
  ModelShelf models(model->get());
  WorkerMetrics metrics(worker, "bench", &models);
  WorkerStats& stats = (*model)->stats();
  std::vector<double> runs;
  for (int run = 0; run < 21; ++run) {
    const double begin = ThreadSeconds();
    for (int i = 0; i < kRefreshes; ++i) {
      ++stats.num_batches;
      stats.compute_seconds += 0.001;
      if (worker == WorkerMetrics::kDrafter) stats.ring_bytes[v1::RING_TRANSPORT_SHM] += 1 << 16;
      metrics.Refresh();
    }
    runs.push_back((ThreadSeconds() - begin) / kRefreshes);
  }
  return Median(runs);
}

// Returns two times in milliseconds: the text of a scrape, and the periodic work of the router's
// thread for the metrics.
std::pair<double, double> ScrapeSeconds(int slots) {
  RouterMetrics metrics("bench", "toy", 16);
  testing::EngineDriver driver(WithDrafts(static_cast<uint32_t>(slots)), {}, &metrics);
  driver.drafter.options.max_slots = static_cast<uint32_t>(slots);
  driver.verifier.options.max_slots = static_cast<uint32_t>(slots);
  driver.Start();
  for (int i = 0; i < slots; ++i) driver.Send(driver.Request({1, 2, 3}, 1 << 16));
  for (int step = 0; step < 20; ++step) driver.Step();
  if (driver.engine().num_running() != static_cast<size_t>(slots)) {
    throw std::runtime_error(std::to_string(driver.engine().num_running()) + " slots run");
  }
  std::vector<double> refreshes, texts;
  for (int i = 0; i < kScrapes; ++i) {
    const double begin = ThreadSeconds();
    metrics.Refresh(driver.fleet.State());
    const LiveSample sample = metrics.Sample(driver.fleet.State());
    const double middle = ThreadSeconds();
    const std::string text = metrics.registry().Serialize();
    refreshes.push_back(middle - begin);
    texts.push_back(ThreadSeconds() - middle);
    if (text.empty() || sample.gauges.running != slots) throw std::runtime_error("no figures");
  }
  return {Median(refreshes), Median(texts)};
}

int Run(const Options& options) {
  std::vector<double> with, without;
  RoundCounter counter;
  Serve(&counter);
  for (int pair = 0; pair < options.pairs; ++pair) {
    RouterMetrics metrics("bench", "toy", 16);
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn + pair) % 2 == 0) {
        with.push_back(Serve(&metrics));
      } else {
        without.push_back(Serve(NobodyObserves()));
      }
    }
  }
  const Ratio ratio = PairedRatio(with, without);
  const double cost = (ratio.mean - 1) * Median(without) / counter.num_rounds;
  const double most = (ratio.high - 1) * Median(without) / counter.num_rounds;
  const double round = EmbeddedRoundSeconds();
  const double verifier = WorkerRefreshSeconds(WorkerMetrics::kVerifier, kTarget);
  const double drafter = WorkerRefreshSeconds(WorkerMetrics::kDrafter, kDraft);
  const auto [refresh, text] = ScrapeSeconds(options.slots);
  std::printf(
      "counting: %.2f µs a round of %d streams (95 %%: at most %.2f), %.3f %% (at most %.3f %%) of "
      "the embedded "
      "pair's %.2f ms; %zu pairs\n"
      "workers: %.0f ns a command of the verifier, %.0f ns of the drafter, both %.4f %% of such a "
      "round\n"
      "scrape with %d slots running: %.2f ms of text, %.3f ms of the router's thread\n",
      1e6 * cost, kStreams, 1e6 * most, 100 * cost / round, 100 * most / round, 1e3 * round,
      ratio.pairs, 1e9 * verifier, 1e9 * drafter, 100 * (verifier + drafter) / round, options.slots,
      1e3 * text, 1e3 * refresh);
  const bool met = std::max(most, verifier + drafter) < kGoal * round;
  std::printf("goal: less than %.0f %% of a round: %s\n", 100 * kGoal, met ? "met" : "MISSED");
  if (!options.json.empty()) {
    const nlohmann::json report = {{"streams", kStreams},
                                   {"pairs", ratio.pairs},
                                   {"seconds_a_round", cost},
                                   {"seconds_a_round_at_most", most},
                                   {"embedded_round_seconds", round},
                                   {"share", cost / round},
                                   {"share_at_most", most / round},
                                   {"verifier_refresh_seconds", verifier},
                                   {"drafter_refresh_seconds", drafter},
                                   {"workers_share", (verifier + drafter) / round},
                                   {"goal", kGoal},
                                   {"met", met},
                                   {"slots", options.slots},
                                   {"scrape_seconds", text},
                                   {"refresh_seconds", refresh}};
    std::ofstream(options.json) << report.dump(2) << '\n';
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Options options;
  CLI::App app("Measures what metrics cost.");
  app.add_option("--pairs", options.pairs, "Interleaved pairs")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  app.add_option("--slots", options.slots, "Number of running slots while metrics are read")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--json", options.json, "Also write the numbers to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return tandem::bench::Run(options);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
