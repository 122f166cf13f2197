// Feeds the lookups of a request with any text, in any pieces, and compares what they promise.
//
// The input is: the length of the prompt, the prediction (a chunk), and steps. A step is a byte for
// the number of tokens that are committed next, a byte for the number that one event takes over,
// and a byte for each token.
#include <algorithm>
#include <vector>

#include "services/router/drafting/lookup/request_lookups.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  fuzz::FuzzInput input(data, size);
  DrafterSet drafters(Drafter::kSuffix);
  drafters.Add(Drafter::kNgram);
  drafters.Add(Drafter::kPrediction);
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
  while (!input.empty()) {
    for (unsigned more = input.Byte() % 8; more > 0; --more) tokens.push_back(input.Byte() % 8);
    const size_t most = input.Byte();
    fuzz::Check(lookups.Advance(tokens, most) <= 3 * most, "an event takes no more than it may");
    const LookupDraft draft = lookups.Find(tokens, kMaxTokens);
    fuzz::Check(draft.token_ids.size() <= kMaxTokens, "a draft is as long as was asked for");
    for (const int32_t id : draft.token_ids) {
      fuzz::Check(std::count(tokens.begin(), tokens.end(), id) > 0 ||
                      std::count(prediction.begin(), prediction.end(), id) > 0,
                  "each token stands in the text");
    }
    if (draft.token_ids.empty()) continue;
    const auto num_drafted = static_cast<uint32_t>(draft.token_ids.size());
    lookups.Observe(draft.drafter, draft.match_length, num_drafted, num_drafted / 2);
    const double chance = lookups.EstimateOf(draft).Conditional(0);
    fuzz::Check(chance >= 0 && chance <= 1, "an estimate is a chance");
  }
  return 0;
}
