// Measures the cost of the split into three processes: the same rounds of the same requests in one
// process and in three, in interleaved pairs.
//
//   process_split [--target DIR --draft DIR] [--draft-length 4] [--tokens 64] [--pairs 20]
//                 [--modes greedy,sampled] [--threads N] [--json FILE]
//
// Both sides use the engine's own measurement, decode_seconds, from the first token to the last.
// Greedy output must be the same, token for token.

#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/one_process.h"
#include "bench/support/paired_ratio.h"
#include "kernels/cpu.h"
#include "services/cli/bench/serve/process_usage.h"
#include "tandem/v1/generate.grpc.pb.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_dir.h"

namespace tandem::bench {
namespace {

constexpr int kMostRunsOfPair = 10;  // after this many runs a pair counts, however much was stolen

struct Options {
  std::string target = TANDEM_SOURCE_DIR "/models/tales/target";
  std::string draft = TANDEM_SOURCE_DIR "/models/tales/draft";
  int draft_length = 4;
  int tokens = 64;
  int prompt_tokens = 32;
  int pairs = 20;
  // Largest share of the processor time that other machines may take in a pair; otherwise the pair
  // is run again.
  double most_stolen = 1;
  std::vector<std::string> modes = {"greedy", "sampled"};
  int threads = DefaultThreads();
  int max_context = 512;
  std::string json;
};

// Starts the executables in the way of `tandem serve`.
class ThreeProcesses {
 public:
  explicit ThreeProcesses(const Options& options)
      : verifier_(Worker("tandem-verifier", options.target, options)),
        draft_(Worker("tandem-draft", options.draft, options)),
        router_({testing::Executable("tandem-router").string(), "--target", options.target,
                 "--verifier", verifier_.WaitReady(kStartTimeout), "--drafter",
                 draft_.WaitReady(kStartTimeout), "--max-slots", "1", "--listen",
                 Socket("tandem-router"), "--log-level", "warn"}) {
    router_.WaitReady(kStartTimeout);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = v1::Generation::NewStub(grpc::CreateCustomChannel(
        Socket("tandem-router"), grpc::InsecureChannelCredentials(), arguments));
  }

  v1::GenerateResponse Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse all;
    v1::GenerateResponse message;
    while (reader->Read(&message)) all.MergeFrom(message);
    const grpc::Status status = reader->Finish();
    if (!status.ok()) throw std::runtime_error("three processes: " + status.error_message());
    return all;
  }

 private:
  static constexpr std::chrono::seconds kStartTimeout{60};

  std::string Socket(const std::string& name) const {
    return "unix:" + (folder_ / (name + ".sock")).string();
  }
  std::vector<std::string> Worker(const std::string& name, const std::string& model,
                                  const Options& options) const {
    return {testing::Executable(name).string(),
            "--model",
            model,
            "--listen",
            Socket(name),
            "--threads",
            std::to_string(options.threads),
            "--max-slots",
            "1",
            "--max-context",
            std::to_string(options.max_context),
            "--log-level",
            "warn"};
  }

  testing::TempDir folder_;
  testing::ChildProcess verifier_;
  testing::ChildProcess draft_;
  testing::ChildProcess router_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

v1::GenerateRequest MakeRequest(const Options& options, const std::string& mode, int pair) {
  v1::GenerateRequest request;
  std::mt19937 random(static_cast<uint32_t>(pair) + 1);
  for (int i = 0; i < options.prompt_tokens; ++i) {
    request.mutable_prompt_token_ids()->add_ids(static_cast<int32_t>(random() % 256));
  }
  v1::SamplingParams& sampling = *request.mutable_sampling_params();
  sampling.set_temperature(mode == "greedy" ? 0 : 1);
  sampling.set_seed(static_cast<uint64_t>(pair) + 1);
  sampling.set_max_tokens(options.tokens);
  sampling.set_ignore_eos(true);
  request.mutable_speculation()->set_reproducible(false);
  request.mutable_speculation()->set_draft_length(options.draft_length);
  return request;
}

// Returns the seconds of one round. Every token except the accepted ones came from a round of its
// own.
double RoundSeconds(const v1::Completion& completion) {
  const int rounds =
      completion.usage().completion_tokens() - 1 - completion.speculation().num_accepted_tokens();
  return completion.timings().decode_seconds() / std::max(1, rounds);
}

bool SameTokens(const v1::GenerateResponse& a, const v1::GenerateResponse& b) {
  return std::equal(a.token_ids().begin(), a.token_ids().end(), b.token_ids().begin(),
                    b.token_ids().end());
}

nlohmann::json Measure(const Options& options, const std::string& mode, OneProcess& one,
                       ThreeProcesses& three) {
  std::vector<double> one_seconds, three_seconds, one_rounds, three_rounds;
  int set_aside = 0;
  int run = 1;                                  // number of the run of this pair
  for (int pair = -1; pair < options.pairs;) {  // -1 warms up
    const cli::CpuSeconds before = cli::ReadCpuSeconds();
    const v1::GenerateRequest request = MakeRequest(options, mode, pair);
    v1::GenerateResponse in_one, in_three;
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn + pair) % 2 == 0) {
        in_three = three.Generate(request);
        continue;
      }
      auto response = one.Generate(request);
      if (!response.ok()) {
        throw std::runtime_error("one process: " + std::string(response.status().message()));
      }
      in_one = *std::move(response);
    }
    if (mode == "greedy" && !SameTokens(in_one, in_three)) {
      throw std::runtime_error("pair " + std::to_string(pair) +
                               ": one process and three gave different greedy tokens");
    }
    if (pair >= 0 && run < kMostRunsOfPair &&
        cli::StolenShare(before, cli::ReadCpuSeconds()) > options.most_stolen) {
      ++run;
      ++set_aside;
      continue;
    }
    run = 1;
    if (pair++ < 0) continue;
    one_seconds.push_back(in_one.completion().timings().decode_seconds());
    three_seconds.push_back(in_three.completion().timings().decode_seconds());
    one_rounds.push_back(RoundSeconds(in_one.completion()));
    three_rounds.push_back(RoundSeconds(in_three.completion()));
  }
  const Ratio ratio = PairedRatio(three_seconds, one_seconds);
  std::printf("%-8s %10.3f ms %10.3f ms   %.3f× (95 %%: %.3f – %.3f, %zu pairs)\n", mode.c_str(),
              1e3 * Median(one_rounds), 1e3 * Median(three_rounds), ratio.mean, ratio.low,
              ratio.high, ratio.pairs);
  std::fflush(stdout);
  return {
      {"mode", mode},
      {"one_process_round_seconds", Median(one_rounds)},
      {"three_processes_round_seconds", Median(three_rounds)},
      {"set_aside", set_aside},
      {"ratio",
       {{"mean", ratio.mean}, {"low", ratio.low}, {"high", ratio.high}, {"pairs", ratio.pairs}}}};
}

int Run(const Options& options) {
  const auto one = OneProcess::Start({.target = options.target,
                                      .draft = options.draft,
                                      .threads = options.threads,
                                      .max_slots = 1,
                                      .max_context = static_cast<size_t>(options.max_context)});
  if (!one.ok()) throw std::runtime_error(std::string(one.status().message()));
  ThreeProcesses three(options);
  std::printf("%s, drafter %s, draft length %d, %d tokens a run, %s, %d threads a worker\n",
              options.target.c_str(), options.draft.c_str(), options.draft_length, options.tokens,
              InstructionSet().c_str(), options.threads);
  std::printf("%-8s %13s %13s   three / one\n", "a round", "one process", "three");
  nlohmann::json report = {{"target", std::filesystem::path(options.target).filename()},
                           {"draft", std::filesystem::path(options.draft).filename()},
                           {"draft_length", options.draft_length},
                           {"tokens", options.tokens},
                           {"threads", options.threads},
                           {"instruction_set", InstructionSet()},
                           {"modes", nlohmann::json::array()}};
  for (const std::string& mode : options.modes) {
    report["modes"].push_back(Measure(options, mode, **one, three));
  }
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(2) << '\n';
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Options options;
  CLI::App app("Measures what the split into three processes costs.");
  app.add_option("--target", options.target, "Folder of the target (default: the embedded one)");
  app.add_option("--draft", options.draft, "Folder of the drafter (default: the embedded one)");
  app.add_option("--draft-length", options.draft_length, "Draft tokens in a round")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "Tokens in a run")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--prompt-tokens", options.prompt_tokens)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--pairs", options.pairs, "Interleaved pairs")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  app.add_option("--most-stolen", options.most_stolen,
                 "Share of the processor time that others may get in a pair; with more it is run "
                 "again, up to ten times")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--modes", options.modes, "greedy, sampled")
      ->delimiter(',')
      ->check(CLI::IsMember({"greedy", "sampled"}));
  app.add_option("--threads", options.threads, "Threads for each worker")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-context", options.max_context, "Tokens in a sequence")
      ->check(CLI::PositiveNumber)
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
