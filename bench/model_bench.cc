// Measures forward passes of a model on the CPU: decoding, the verify cost curve, and prefill,
// beside the read bandwidth of the machine.
//
//   bench_model --model DIR [--threads N] [--depth 128] [--rows 1,2,4,8,12,16] [--prefill 512]
//               [--pairs 20] [--json FILE] [--matrix-units] [--round-activations]
//
// --interactive answers one measurement per line, for scripts that interleave the measurements with
// those of another program (bench/llama_cpp/compare.py). The lines `rows N` and `prefill N` print
// seconds, and `bandwidth` prints bytes per second.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "bench/support/paired_ratio.h"
#include "bench/support/read_bandwidth.h"
#include "common/model/language_model.h"
#include "kernels/amx/matrix_units.h"
#include "kernels/cpu.h"
#include "kernels/support/activation_precision.h"

namespace tandem::bench {
namespace {

constexpr size_t kBandwidthBytes = size_t{2} << 30;

class ModelBench {
 public:
  ModelBench(LanguageModel* model, KvCache* cache, ThreadPool* pool, size_t depth)
      : model_(model), cache_(cache), pool_(pool), depth_(depth) {
    std::mt19937 random(1);
    tokens_.resize(cache->capacity());
    for (int32_t& token : tokens_) {
      token = static_cast<int32_t>(random() % model->description().vocabulary_size);
    }
    Pass(depth_, 1);
  }

  // Returns the seconds of a pass over `rows` rows with logits, after `depth` rows: the
  // verification of one round.
  double Verify(size_t rows) {
    cache_->TruncateTo(depth_);
    return Pass(rows, rows);
  }

  // Returns the seconds of a prompt of `rows` rows. Only the last row has logits.
  double Prefill(size_t rows) {
    cache_->TruncateTo(0);
    const double seconds = Pass(rows, 1);
    cache_->TruncateTo(0);
    Pass(depth_, 1);
    return seconds;
  }

  double Bandwidth() {
    if (bandwidth_ == nullptr) bandwidth_ = std::make_unique<ReadBandwidth>(kBandwidthBytes);
    return bandwidth_->Measure(*pool_);
  }

 private:
  double Pass(size_t rows, size_t num_logits) {
    const ForwardItem item{.cache = cache_,
                           .token_ids = {tokens_.data() + cache_->length(), rows},
                           .parents = {},
                           .num_logits = num_logits};
    const auto begin = std::chrono::steady_clock::now();
    const auto logits = model_->Forward({&item, 1});
    const auto end = std::chrono::steady_clock::now();
    if (!logits.ok()) throw std::runtime_error(std::string(logits.status().message()));
    return std::chrono::duration<double>(end - begin).count();
  }

  LanguageModel* model_;
  KvCache* cache_;
  ThreadPool* pool_;
  size_t depth_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<ReadBandwidth> bandwidth_;
};

void Interact(ModelBench& bench) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    size_t rows = 0;
    words >> what >> rows;
    const double result = what == "rows"      ? bench.Verify(rows)
                          : what == "prefill" ? bench.Prefill(rows)
                                              : bench.Bandwidth();
    std::printf("%.9g\n", result);
    std::fflush(stdout);
  }
}

nlohmann::json ToJson(const Ratio& ratio) {
  return {{"mean", ratio.mean}, {"low", ratio.low}, {"high", ratio.high}, {"pairs", ratio.pairs}};
}

struct Options {
  std::string model;
  int threads = DefaultThreads();
  size_t depth = 128;
  std::vector<size_t> rows = {2, 4, 8, 12, 16};
  size_t prefill = 512;
  size_t pairs = 20;
  std::string json;
  bool interactive = false;
  bool matrix_units = false;
  bool round_activations = false;
};

void Report(const Options& options, const LanguageModel& model, ModelBench& bench) {
  const auto weight_bytes = static_cast<double>(model.weight_bytes());
  nlohmann::json report = {{"instruction_set", InstructionSet()},
                           {"threads", options.threads},
                           {"depth", options.depth},
                           {"weight_bytes", weight_bytes}};

  // Decoding reads every weight once. Each pass is therefore compared with a plain read of the same
  // number of bytes.
  std::vector<double> decode_rates, bandwidths, decode_seconds;
  for (size_t i = 0; i < options.pairs; ++i) {
    decode_seconds.push_back(bench.Verify(1));
    decode_rates.push_back(weight_bytes / decode_seconds.back());
    bandwidths.push_back(bench.Bandwidth());
  }
  const Ratio fraction = PairedRatio(decode_rates, bandwidths);
  std::printf("decode     %8.2f tokens/s  %6.2f GB/s of weights, %.2f GB/s read bandwidth\n",
              1 / Median(decode_seconds), Median(decode_rates) / 1e9, Median(bandwidths) / 1e9);
  std::printf("           %.1f %% of the bandwidth (95 %%: %.1f – %.1f, %zu pairs)\n",
              100 * fraction.mean, 100 * fraction.low, 100 * fraction.high, fraction.pairs);
  report["decode"] = {{"seconds", Median(decode_seconds)},
                      {"bandwidth_bytes_per_second", Median(bandwidths)},
                      {"fraction_of_bandwidth", ToJson(fraction)}};

  for (size_t rows : options.rows) {
    std::vector<double> many, one;
    for (size_t i = 0; i < options.pairs; ++i) {
      many.push_back(bench.Verify(rows));
      one.push_back(bench.Verify(1));
    }
    const Ratio ratio = PairedRatio(many, one);
    std::printf("%3zu rows   %8.2f ms       %.3f× one row (95 %%: %.3f – %.3f)\n", rows,
                1e3 * Median(many), ratio.mean, ratio.low, ratio.high);
    report["verify"][std::to_string(rows)] = {{"seconds", Median(many)}, {"ratio", ToJson(ratio)}};
  }

  std::vector<double> prefill;
  for (size_t i = 0; i < 5; ++i) prefill.push_back(bench.Prefill(options.prefill));
  const double rate = static_cast<double>(options.prefill) / Median(prefill);
  std::printf("prefill    %8.2f tokens/s  of %zu\n", rate, options.prefill);
  report["prefill"] = {{"tokens", options.prefill}, {"tokens_per_second", rate}};
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(2) << '\n';
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Options options;
  CLI::App app("Measures forward passes of a model: decode, verify cost curve, prefill.");
  app.add_option("--model", options.model, "Folder in Hugging Face layout")->required();
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--depth", options.depth, "Rows in the cache before the measured ones");
  app.add_option("--rows", options.rows, "Rows of the verify cost curve")->delimiter(',');
  app.add_option("--prefill", options.prefill, "Length of the prompt");
  app.add_option("--pairs", options.pairs, "Interleaved pairs of each ratio")
      ->check(CLI::Range(2, 1000));
  app.add_option("--json", options.json, "Also write the numbers to this file");
  app.add_flag("--interactive", options.interactive, "Answer requests for measurements on stdin");
  app.add_flag("--matrix-units", options.matrix_units,
               "Multiply BF16 weights on AMX's matrix units if the CPU has them");
  app.add_flag("--round-activations", options.round_activations,
               "Round activations to BF16 if the CPU multiplies BF16 numbers");
  CLI11_PARSE(app, argc, argv);
  tandem::AllowMatrixUnits(options.matrix_units);
  tandem::RoundActivations(options.round_activations);

  tandem::ThreadPool pool(options.threads);
  auto model = tandem::LanguageModel::Load(options.model, &pool);
  if (!model.ok()) {
    std::cerr << "error: " << std::string(model.status().message()) << '\n';
    return 1;
  }
  const size_t rows = std::max(options.prefill, options.depth + 64);
  const tandem::ModelDescription& config = (*model)->description();
  auto pages = tandem::KvPagePool::Create(config, tandem::HostKvMemory::Bytes(config, rows));
  if (!pages.ok()) {
    std::cerr << "error: " << std::string(pages.status().message()) << '\n';
    return 1;
  }
  tandem::KvCache cache(pages->get(), rows);
  tandem::bench::ModelBench bench(model->get(), &cache, &pool, options.depth);
  if (options.interactive) {
    tandem::bench::Interact(bench);
  } else {
    tandem::bench::Report(options, **model, bench);
  }
  return 0;
}
