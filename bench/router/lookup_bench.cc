// Times the lookups of one request: taking a committed token over, and finding a draft.
//   bench_lookup
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/continuation_tree.h"
#include "services/router/drafting/lookup/request_lookups.h"

namespace tandem {
namespace {

constexpr size_t kPrompt = 8192;
constexpr size_t kOutput = 2048;
constexpr uint32_t kDraftTokens = 16;

std::vector<int32_t> RandomText(size_t size, uint32_t vocabulary, std::mt19937_64& random) {
  std::vector<int32_t> text(size);
  for (int32_t& token : text) token = static_cast<int32_t>(random() % vocabulary);
  return text;
}

// Texts with few and many places that agree.
std::vector<std::pair<std::string, std::vector<int32_t>>> Texts() {
  std::mt19937_64 random(1);
  std::vector<std::pair<std::string, std::vector<int32_t>>> texts;
  texts.emplace_back("random, 32,000 ids", RandomText(kPrompt + kOutput, 32000, random));
  texts.emplace_back("random, 4 ids", RandomText(kPrompt + kOutput, 4, random));
  std::vector<int32_t> page = RandomText(700, 32000, random);
  std::vector<int32_t> repeated;
  while (repeated.size() < kPrompt + kOutput) {
    repeated.insert(repeated.end(), page.begin(), page.end());
    page[random() % page.size()] = static_cast<int32_t>(random() % 32000);
  }
  repeated.resize(kPrompt + kOutput);
  texts.emplace_back("a page with edits", std::move(repeated));
  return texts;
}

struct Times {
  double prompt_token = 0;  // microseconds for each token of the prompt
  double output_token = 0;  // and of the output, one by one
  double draft = 0;
  double slowest_draft = 0;
};

// The answer of a search: what follows in the text, and ways that leave it after each token.
LookupDraft Answer(std::span<const int32_t> text) {
  std::vector<Continuation> texts = {{{text.begin(), text.end()}, 2}};
  texts[0].token_ids.resize(std::min<size_t>(text.size(), RetrievalLookup::kWantedTokens));
  for (size_t i = 0; i < texts[0].token_ids.size(); ++i) {
    texts.push_back({{text.begin(), text.begin() + static_cast<ptrdiff_t>(i)}, 1});
    texts.back().token_ids.insert(texts.back().token_ids.end(), {1, 2, 3});
  }
  ContinuationTree tree = MergeContinuations(texts, {.max_depth = RetrievalLookup::kWantedTokens,
                                                     .max_nodes = RetrievalLookup::kWantedNodes});
  LookupDraft answer;
  answer.drafter = Drafter::kRetrieval;
  answer.token_ids = std::move(tree.token_ids);
  answer.parents = std::move(tree.parents);
  answer.match_length = 8;
  return answer;
}

Times Measure(Drafter drafter, const std::vector<int32_t>& text, uint32_t nodes) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  LookupPriors priors;
  std::vector<int32_t> prediction;
  if (drafter == Drafter::kPrediction) prediction.assign(text.begin() + kPrompt, text.end());
  RequestLookups lookups(DrafterSet(drafter), {}, AcceptanceMode::kGreedy, kPrompt, kOutput,
                         std::move(prediction), &priors);
  Times times;
  const std::span<const int32_t> all(text);
  auto begin = Clock::now();
  while (lookups.Advance(all.first(kPrompt), 4096) > 0) {
  }
  times.prompt_token = since(begin) / kPrompt;
  for (size_t size = kPrompt + 1; size <= text.size(); ++size) {
    begin = Clock::now();
    (void)lookups.Advance(all.first(size), 4096);
    times.output_token += since(begin) / kOutput;
    if (drafter == Drafter::kRetrieval && size % 4 == 0) {
      lookups.retrieval()->OnFound(size, Answer(all.subspan(size)));
    }
    begin = Clock::now();
    (void)lookups.Find(all.first(size), {kDraftTokens, nodes});
    const double took = since(begin);
    times.draft += took / kOutput;
    times.slowest_draft = std::max(times.slowest_draft, took);
  }
  return times;
}

}  // namespace
}  // namespace tandem

int main() {
  std::printf("%-18s %-20s %14s %14s %10s %10s\n", "drafter", "text", "prompt token",
              "output token", "draft", "slowest");
  for (const auto& [name, text] : tandem::Texts()) {
    for (const auto& [drafter, nodes] :
         {std::pair(tandem::Drafter::kSuffix, 0U), std::pair(tandem::Drafter::kSuffix, 16U),
          std::pair(tandem::Drafter::kNgram, 0U), std::pair(tandem::Drafter::kPrediction, 0U),
          std::pair(tandem::Drafter::kRetrieval, 16U)}) {
      const tandem::Times times = tandem::Measure(drafter, text, nodes);
      const std::string label = tandem::DrafterName(drafter) + (nodes > 0 ? ", trees" : "");
      std::printf("%-18s %-20s %11.3f us %11.3f us %7.2f us %7.1f us\n", label.c_str(),
                  name.c_str(), times.prompt_token, times.output_token, times.draft,
                  times.slowest_draft);
    }
  }
  return 0;
}
