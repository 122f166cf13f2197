// Measures a GPU, and the share of it that a model uses: copy bandwidth, a decode step, and passes
// of several rows, each as a graph and kernel by kernel in turn. Times come from events of the
// device, except for enqueue_seconds, which is time of the host. Medians of the repetitions are
// reported. It also times the sampling kernels by themselves.
//
//   bench_device [--gpu N] [--copy-bytes 1GiB] [--model DIR] [--exact] [--context 512]
//                [--rows 1,2,4,8,16] [--sampling-vocabulary V] [--sampling-rows 5,40]
//                [--repeats 50]
//
// Prints one JSON object. Exit code 3 means that there is no GPU; the text says why.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/device_sampling.h"
#include "bench/support/device_timer.h"
#include "common/model/cuda/cuda_model.h"
#include "common/status.h"
#include "kernels/device/device.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem::bench {
namespace {

struct Options {
  int gpu = 0;
  uint64_t copy_bytes = uint64_t{1} << 30;
  std::string model;
  bool is_exact = false;
  size_t context = 512;
  std::vector<size_t> rows = {1, 2, 4, 8, 16};
  size_t sampling_vocabulary = 0;
  std::vector<size_t> sampling_rows = {5, 40};
  size_t repeats = 50;
};

// Returns the bytes read and written per second.
absl::StatusOr<double> CopyBandwidth(const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(DeviceArena arena,
                          DeviceArena::Create(2 * DeviceArena::Rounded(options.copy_bytes)));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const from,
                          arena.Take<std::byte>(options.copy_bytes, "what is copied"));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const to,
                          arena.Take<std::byte>(options.copy_bytes, "the copy"));
  TANDEM_ASSIGN_OR_RETURN(const DeviceStream stream, DeviceStream::Create());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<DeviceSeconds> seconds,
                          MeasureOnDevice(stream, options.repeats, {[&] {
                                            return stream.Copy(to, from, options.copy_bytes);
                                          }}));
  return 2 * static_cast<double>(options.copy_bytes) / MedianOf(seconds[0].device);
}

// Measures passes of one sequence after `context` rows.
absl::StatusOr<nlohmann::json> MeasureModel(const Options& options, double bandwidth) {
  const size_t most_rows = *std::max_element(options.rows.begin(), options.rows.end());
  // A first pass fills the context. Pages are whole, and every pass may take one more.
  const size_t capacity = (options.context + most_rows + kPageRows) / kPageRows * kPageRows;
  TANDEM_ASSIGN_OR_RETURN(const auto model,
                          CudaModel::Load(options.model, {.device = options.gpu,
                                                          .max_context = capacity,
                                                          .max_slots = 1,
                                                          .exact_activations = options.is_exact}));
  TANDEM_ASSIGN_OR_RETURN(const auto pages, model->TakePages());
  KvCache cache(pages.get(), capacity);
  std::mt19937 random(1);
  std::vector<int32_t> tokens(capacity);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % model->description().vocabulary_size);
  }
  const auto pass = [&](size_t rows) -> absl::Status {
    const ForwardItem item{.cache = &cache,
                           .token_ids = {tokens.data() + cache.length(), rows},
                           .parents = {},
                           .num_logits = rows <= CudaModel::kMaxLogitsRows ? rows : 1};
    return model->ForwardOnDevice({&item, 1}).status();
  };
  if (options.context > 0) TANDEM_RETURN_IF_ERROR(pass(options.context));
  nlohmann::json passes = nlohmann::json::array();
  for (const size_t rows : options.rows) {
    const auto with_graphs = [&](bool use) {
      return [&, use]() -> absl::Status {
        model->UseGraphs(use);
        cache.TruncateTo(options.context);
        return pass(rows);
      };
    };
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<DeviceSeconds> seconds,
        MeasureOnDevice(model->stream(), options.repeats, {with_graphs(true), with_graphs(false)}));
    const double of_pass = MedianOf(seconds[0].device);
    const double bytes_per_second = static_cast<double>(model->weight_bytes()) / of_pass;
    passes.push_back({{"rows", rows},
                      {"seconds", of_pass},
                      {"enqueue_seconds", MedianOf(seconds[0].enqueue)},
                      {"seconds_without_graphs", MedianOf(seconds[1].device)},
                      {"enqueue_seconds_without_graphs", MedianOf(seconds[1].enqueue)},
                      {"weight_bytes_per_second", bytes_per_second},
                      {"share_of_copy_bandwidth", bytes_per_second / bandwidth}});
  }
  return nlohmann::json{{"folder", options.model},
                        {"exact_activations", options.is_exact},
                        {"weight_bytes", model->weight_bytes()},
                        {"context", options.context},
                        {"graphs", model->graphs().num_recorded()},
                        {"passes", passes}};
}

absl::StatusOr<nlohmann::json> Run(const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(const DeviceInfo device, UseDevice(options.gpu));
  nlohmann::json report = {{"device", device.name},
                           {"capability", device.capability},
                           {"multiprocessors", device.num_multiprocessors},
                           {"memory_bytes", device.memory_bytes},
                           {"cuda_driver", device.driver_version},
                           {"cuda_runtime", device.runtime_version},
                           {"repeats", options.repeats}};
  TANDEM_ASSIGN_OR_RETURN(const double bandwidth, CopyBandwidth(options));
  report["copy_bytes_per_second"] = bandwidth;
  if (!options.model.empty()) {
    TANDEM_ASSIGN_OR_RETURN(report["model"], MeasureModel(options, bandwidth));
  }
  if (options.sampling_vocabulary > 0) {
    nlohmann::json sampling = nlohmann::json::array();
    for (const size_t rows : options.sampling_rows) {
      TANDEM_ASSIGN_OR_RETURN(sampling.emplace_back(),
                              MeasureSampling(options.sampling_vocabulary, rows, options.repeats));
    }
    report["sampling"] = sampling;
  }
  return report;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Copy bandwidth of a GPU, and its use by passes of a model. Prints JSON.",
               "bench_device");
  app.add_option("--gpu", options.gpu, "Number of the GPU")->capture_default_str();
  app.add_option("--copy-bytes", options.copy_bytes, "Size of the copy that measures bandwidth")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->capture_default_str();
  app.add_option("--model", options.model, "Folder of a model; none: only bandwidth")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--exact", options.is_exact, "Exact activations instead of rounded ones");
  app.add_option("--context", options.context, "Rows in the cache")->capture_default_str();
  app.add_option("--rows", options.rows, "Rows of a pass")
      ->delimiter(',')
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--sampling-vocabulary", options.sampling_vocabulary,
                 "Vocabulary size of the sampling kernels; 0: they are not measured")
      ->capture_default_str();
  app.add_option("--sampling-rows", options.sampling_rows, "Rows of the sampling kernels")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "Repetitions of each pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<nlohmann::json> report = Run(options);
  if (!report.ok()) {
    std::cerr << "bench_device: " << report.status().message() << "\n";
    return absl::IsFailedPrecondition(report.status()) ? 3 : 1;
  }
  std::cout << report->dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) { return tandem::bench::Main(argc, argv); }
