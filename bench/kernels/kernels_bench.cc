// Times the matrix products of a 1B-shaped Llama (BF16), without the rest of the model. Prints
// bytes and operations per second by number of rows, beside the read bandwidth measured in the same
// run.
//
//   bench_kernels [--threads N] [--rows 1,2,4,8,12,16,512] [--pairs N] [--json FILE]

#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "bench/support/paired_ratio.h"
#include "bench/support/read_bandwidth.h"
#include "kernels/cpu.h"
#include "kernels/matmul.h"

namespace tandem::bench {
namespace {

constexpr size_t kHidden = 2048;
constexpr size_t kKv = 512;
constexpr size_t kInner = 8192;
constexpr size_t kVocabulary = 128256;
constexpr size_t kLayers = 16;
constexpr size_t kMaxRows = 512;

double SecondsOf(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Weights on ordinary pages, like those of a mapped file. They are larger than any cache, and each
// matrix has its own memory.
class Weights {
 public:
  explicit Weights(size_t count) : bytes_(count * 2) {
    data_ = static_cast<uint16_t*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_NOHUGEPAGE);
    std::mt19937 random(1);
    // BF16 of magnitude 2^-5 and below. A prime period is random enough for a measurement of time.
    for (size_t i = 0; i < count; ++i) {
      data_[i] = i < 65537 ? static_cast<uint16_t>((random() & 0x80ff) | 0x3c00) : data_[i - 65537];
    }
  }
  ~Weights() { munmap(data_, bytes_); }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  const uint16_t* data() const { return data_; }

 private:
  size_t bytes_;
  uint16_t* data_;
};

// Every product of a forward pass, in the order and grouping of the pass.
class Pass {
 public:
  explicit Pass(ThreadPool* pool)
      : pool_(pool),
        weights_(kLayers * kLayerWeights + kVocabulary * kHidden),
        x_(kMaxRows * kInner),
        out_(kMaxRows * 2 * kInner),
        logits_(16 * kVocabulary) {
    std::mt19937 random(2);
    for (float& value : x_) value = std::uniform_real_distribution<float>(-1, 1)(random);
  }

  // Returns the time of a pass with logits for every row up to 16, and for the last row of longer
  // passes.
  double Seconds(size_t rows) {
    return SecondsOf([&] {
      const uint16_t* w = weights_.data();
      for (size_t layer = 0; layer < kLayers; ++layer) {
        Multiply(rows, kHidden, {kHidden, kKv, kKv}, w);
        Multiply(rows, kHidden, {kHidden}, w);
        Multiply(rows, kHidden, {kInner, kInner}, w);
        Multiply(rows, kInner, {kHidden}, w);
      }
      Multiply(rows <= 16 ? rows : 1, kHidden, {kVocabulary}, w);
    });
  }

  static double Bytes() { return 2.0 * (kLayers * kLayerWeights + kVocabulary * kHidden); }
  static double Operations(size_t rows) {
    return 2.0 * (static_cast<double>(rows) * kLayers * kLayerWeights +
                  static_cast<double>(rows <= 16 ? rows : 1) * kVocabulary * kHidden);
  }

  // Repeats one product on the first weights. They stay in the cache if they fit.
  double SecondsOfOne(size_t rows, size_t in_features, size_t out_features) {
    return SecondsOf([&] {
      const uint16_t* w = weights_.data();
      Multiply(rows, in_features, {out_features}, w);
    });
  }

 private:
  static constexpr size_t kLayerWeights =
      kHidden * (kHidden + 2 * kKv) + kHidden * kHidden + 3 * kHidden * kInner;

  void Multiply(size_t rows, size_t in_features, const std::vector<size_t>& out_features,
                const uint16_t*& w) {
    std::vector<MatMulArgs> products;
    float* out = out_features[0] == kVocabulary ? logits_.data() : out_.data();
    for (const size_t n : out_features) {
      products.push_back({.x = x_.data(),
                          .x_stride = in_features,
                          .rows = rows,
                          .w = w,
                          .dtype = DType::kBF16,
                          .out_features = n,
                          .in_features = in_features,
                          .bias = nullptr,
                          .out = out,
                          .out_stride = n,
                          .add_to_out = false});
      w += n * in_features;
      out += rows * n;
    }
    MatMul(products, *pool_);
  }

  ThreadPool* pool_;
  Weights weights_;
  std::vector<float> x_;
  std::vector<float> out_;
  std::vector<float> logits_;
};

int Run(int argc, char** argv) {
  CLI::App app{"Times the matrix products of a 1B-shaped model"};
  int threads = DefaultThreads();
  std::vector<size_t> row_counts = {1, 2, 4, 8, 12, 16, 512};
  int pairs = 5;
  std::string json_file;
  app.add_option("--threads", threads, "Threads, including the caller")->check(CLI::Range(1, 1024));
  app.add_option("--rows", row_counts, "Row counts")->delimiter(',')->check(CLI::Range(1, 512));
  app.add_option("--pairs", pairs, "Interleaved pairs for each ratio to one row")
      ->check(CLI::Range(2, 1000));
  app.add_option("--json", json_file, "Also write the figures to this file");
  CLI11_PARSE(app, argc, argv);

  ThreadPool pool(threads);
  const ReadBandwidth memory(size_t{1} << 30);
  Pass pass(&pool);
  pass.Seconds(1);
  nlohmann::json report = {{"instruction_set", InstructionSet()},
                           {"threads", threads},
                           {"weight_bytes", Pass::Bytes()},
                           {"rows", nlohmann::json::array()}};
  std::printf("%s, %d threads, %.2f GB of weights\n", InstructionSet().c_str(), threads,
              Pass::Bytes() / 1e9);
  std::printf("%6s %9s %9s %9s %9s  %s\n", "rows", "ms", "GB/s", "of read", "GFLOP/s",
              "time / time of 1 row [95 %]");
  for (const size_t rows : row_counts) {
    std::vector<double> bandwidths;
    std::vector<double> ones;
    std::vector<double> times;
    for (int pair = 0; pair < pairs; ++pair) {
      bandwidths.push_back(memory.Measure(pool));
      ones.push_back(pass.Seconds(1));
      times.push_back(pass.Seconds(rows));
    }
    const double seconds = Median(times);
    const double bandwidth = Median(bandwidths);
    const Ratio ratio = PairedRatio(times, ones);
    std::printf("%6zu %9.2f %9.2f %8.1f%% %9.1f  %.3f [%.3f, %.3f]\n", rows, seconds * 1e3,
                Pass::Bytes() / seconds / 1e9, 100 * Pass::Bytes() / seconds / bandwidth,
                Pass::Operations(rows) / seconds / 1e9, ratio.mean, ratio.low, ratio.high);
    std::fflush(stdout);
    report["rows"].push_back({{"rows", rows},
                              {"seconds", seconds},
                              {"bytes_per_second", Pass::Bytes() / seconds},
                              {"read_bytes_per_second", bandwidth},
                              {"flops", Pass::Operations(rows) / seconds},
                              {"ratio_to_one_row", ratio.mean},
                              {"ratio_low", ratio.low},
                              {"ratio_high", ratio.high},
                              {"pairs", pairs}});
  }

  std::printf("\none product, repeated (small ones stay in cache)\n%22s %6s %9s %9s %9s\n",
              "in x out features", "rows", "us", "GB/s", "GFLOP/s");
  const std::pair<size_t, size_t> shapes[] = {
      {64, 64},           {256, 256},        {256, 1024},      {kHidden, kKv},
      {kHidden, kHidden}, {kHidden, kInner}, {kInner, kHidden}};
  for (const auto& [in_features, out_features] : shapes) {
    for (const size_t rows : {1, 4, 8, 16, 512}) {
      std::vector<double> times;
      for (int i = 0; i < 15; ++i) {
        times.push_back(pass.SecondsOfOne(rows, in_features, out_features));
      }
      const double seconds = Median(times);
      const auto weights = static_cast<double>(in_features * out_features);
      std::printf("%13zu x %6zu %6zu %9.1f %9.2f %9.1f\n", in_features, out_features, rows,
                  seconds * 1e6, 2 * weights / seconds / 1e9,
                  2 * weights * static_cast<double>(rows) / seconds / 1e9);
    }
  }
  if (!json_file.empty()) std::ofstream(json_file) << report.dump(2) << "\n";
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) { return tandem::bench::Run(argc, argv); }
