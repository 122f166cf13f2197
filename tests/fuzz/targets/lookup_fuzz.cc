// Feeds the lookups of a request with any text, in any pieces, and compares what they promise.
//
// The input is: the length of the prompt, the prediction (a chunk), and steps. A step is a byte for
// the number of tokens that are committed next, a byte for the number that one event takes over,
// and a byte for each token. Then come the answer of a search and the target's favorites,
// if there are any, and the limits.
#include <algorithm>
#include <vector>

#include "proto/draft_tree.h"
#include "services/router/drafting/lookup/request_lookups.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  fuzz::FuzzInput input(data, size);
  DrafterSet drafters(Drafter::kSuffix);
  drafters.Add(Drafter::kNgram);
  drafters.Add(Drafter::kPrediction);
  drafters.Add(Drafter::kRetrieval);
  drafters.Add(Drafter::kRecycling);
  NgramOptions ngram;
  ngram.least_order = 1 + input.Byte() % 4;
  ngram.most_order = 1 + input.Byte() % 6;
  ngram.history = 16 + input.Byte();
  std::vector<int32_t> prediction;
  for (const auto byte : input.Chunk()) prediction.push_back(static_cast<uint8_t>(byte) % 8);
  const size_t prompt_len = 1 + input.Byte();
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < prompt_len; ++i) tokens.push_back(input.Byte() % 8);
  LookupPriors priors;
  RequestLookups lookups(drafters, ngram, AcceptanceMode::kGreedy, prompt_len, 64, prediction,
                         &priors);
  constexpr uint32_t kMaxTokens = 8;
  std::vector<int32_t> found;  // tokens of all answers
  while (!input.empty()) {
    for (unsigned more = input.Byte() % 8; more > 0; --more) tokens.push_back(input.Byte() % 8);
    const size_t most = input.Byte();
    fuzz::Check(lookups.Advance(tokens, most) <= 3 * most, "an event takes no more than it may");
    if (input.Byte() % 4 == 0) {
      // The answer of a search that was made up to three tokens ago.
      LookupDraft answer;
      answer.drafter = Drafter::kRetrieval;
      answer.match_length = 1 + input.Byte() % 32;
      for (unsigned left = input.Byte() % 24; left > 0; --left) {
        const auto num_tokens = static_cast<int32_t>(answer.token_ids.size());
        answer.parents.push_back(static_cast<int32_t>(input.Byte()) % (num_tokens + 1) - 1);
        answer.token_ids.push_back(input.Byte() % 8);
      }
      found.insert(found.end(), answer.token_ids.begin(), answer.token_ids.end());
      lookups.retrieval()->OnFound(
          tokens.size() - std::min<size_t>(input.Byte() % 4, tokens.size()), std::move(answer));
    }
    if (input.Byte() % 4 == 0) {
      const std::vector<int32_t> favorites = {input.Byte() % 8, input.Byte() % 8};
      found.insert(found.end(), favorites.begin(), favorites.end());
      lookups.Learn(tokens.back(), favorites);
    }
    const LookupLimits limits(kMaxTokens, input.Byte() % 13);
    const auto drafts = lookups.Find(tokens, limits);
    if (drafts.empty()) continue;
    const LookupDraft& draft = drafts[input.Byte() % drafts.size()];
    if (lookups.IsDueForTrial(draft)) lookups.OnTrial(draft, input.Byte() % 2 == 0);
    fuzz::Check(
        CheckDraft(draft.parents, draft.token_ids.size(), {limits.depth, limits.nodes}).ok(),
        "a draft is as large as was asked for");
    fuzz::Check(std::is_sorted(draft.chances.rbegin(), draft.chances.rend()),
                "chances do not increase");
    for (const int32_t id : draft.token_ids) {
      fuzz::Check(std::count(tokens.begin(), tokens.end(), id) > 0 ||
                      std::count(prediction.begin(), prediction.end(), id) > 0 ||
                      std::count(found.begin(), found.end(), id) > 0,
                  "each token stands in the text");
    }
    const uint32_t depth = DepthOfDraft(draft.parents, draft.token_ids.size());
    std::vector<JudgedPosition> judged = JudgedChain(depth, depth / 2);
    if (!draft.parents.empty()) judged.front() = {.num_children = 3, .accepted = 1};
    lookups.Observe(draft.drafter, draft.match_length, depth, judged);
    const double chance = lookups.EstimateOf(draft).Conditional(0);
    fuzz::Check(chance >= 0 && chance <= 1, "an estimate is a chance");
  }
  return 0;
}
