#include "services/cli/bench/serve/bench_serve_workload.h"

#include <algorithm>
#include <random>
#include <utility>

#include "common/status.h"

namespace tandem::cli {

namespace {

constexpr int kShortestPiece = 4;
constexpr int kLongestPiece = 12;

// Each request has a generator of its own, so that a request does not depend on earlier ones.
std::mt19937_64 GeneratorOf(uint64_t seed, uint64_t index) {
  std::seed_seq words{seed, seed >> 32, index, index >> 32};
  return std::mt19937_64(words);
}

}  // namespace

Workload::Workload(const BenchServeOptions& options, Corpus corpus, int max_context)
    : options_(options), corpus_(std::move(corpus)), max_context_(max_context) {
  for (const auto& prompt : corpus_.prompts) {
    all_ids_.insert(all_ids_.end(), prompt.begin(), prompt.end());
  }
  prefix_ = corpus_.beginning;
  std::mt19937_64 random = GeneratorOf(options_.seed, ~uint64_t{0});
  AppendPieces(random, std::max(prefix_.size(), static_cast<size_t>(options_.shared_prefix)),
               prefix_);
}

absl::StatusOr<Workload> Workload::Create(const BenchServeOptions& options, Corpus corpus,
                                          int max_context) {
  const int room = max_context - static_cast<int>(corpus.beginning.size()) - 2;
  if (options.shared_prefix > room) {
    return InvalidArgument("--shared-prefix: got " + std::to_string(options.shared_prefix) +
                           ", the server's context of " + std::to_string(max_context) +
                           " tokens leaves room for " + std::to_string(std::max(0, room)));
  }
  return Workload(options, std::move(corpus), max_context);
}

absl::StatusOr<Workload::Corpus> Workload::Tokenize(const std::vector<std::string>& prompts,
                                                    GenerationClient& client) {
  Corpus corpus;
  for (const std::string& prompt : prompts) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<int32_t> ids, client.Tokenize(prompt, false));
    if (corpus.prompts.empty()) {
      TANDEM_ASSIGN_OR_RETURN(const std::vector<int32_t> all, client.Tokenize(prompt, true));
      const size_t added = all.size() - std::min(all.size(), ids.size());
      corpus.beginning.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(added));
    }
    if (!ids.empty()) corpus.prompts.push_back(std::move(ids));
  }
  if (corpus.prompts.empty()) {
    return InvalidArgument("--prompts: no prompt has a token");
  }
  return corpus;
}

void Workload::AppendPieces(std::mt19937_64& random, size_t length,
                            std::vector<int32_t>& ids) const {
  std::uniform_int_distribution<size_t> start_of(0, all_ids_.size() - 1);
  std::uniform_int_distribution<int> length_of(kShortestPiece, kLongestPiece);
  while (ids.size() < length) {
    const size_t start = start_of(random);
    const int piece = length_of(random);
    for (int i = 0; i < piece && ids.size() < length; ++i) {
      ids.push_back(all_ids_[(start + static_cast<size_t>(i)) % all_ids_.size()]);
    }
  }
}

PlannedRequest Workload::Plan(uint64_t index, const std::string& mode,
                              const std::string& drafting) const {
  std::mt19937_64 random = GeneratorOf(options_.seed, index);
  std::vector<int32_t> ids = prefix_;
  if (options_.prompt_length) {
    const int length = options_.prompt_length->Draw(random, max_context_ - 1);
    AppendPieces(random, std::max(prefix_.size() + 1, static_cast<size_t>(length)), ids);
  } else {
    const std::vector<int32_t>& prompt = corpus_.prompts[index % corpus_.prompts.size()];
    ids.insert(ids.end(), prompt.begin(), prompt.end());
  }
  ids.resize(std::min(ids.size(), static_cast<size_t>(max_context_ - 1)));
  const int output_length =
      options_.output_length.Draw(random, max_context_ - static_cast<int>(ids.size()));
  const double leaves = std::uniform_real_distribution<double>(0, 1)(random);
  const double leaves_at = std::uniform_real_distribution<double>(0, 1)(random);

  PlannedRequest planned;
  planned.request.mutable_prompt_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  v1::SamplingParams& sampling = *planned.request.mutable_sampling_params();
  sampling.set_max_tokens(output_length);
  sampling.set_ignore_eos(true);
  sampling.set_temperature(mode == "greedy" ? 0 : options_.temperature);
  sampling.set_seed(random());
  v1::SpeculationParams& speculation = *planned.request.mutable_speculation();
  speculation.set_reproducible(mode == "reproducible");
  speculation.set_enabled(drafting != "off");
  if (drafting == "on") speculation.set_draft_length(options_.draft_length);
  if (leaves < options_.cancel_fraction) {
    planned.cancel_after_tokens = static_cast<int>(leaves_at * output_length);
  }
  return planned;
}

}  // namespace tandem::cli
