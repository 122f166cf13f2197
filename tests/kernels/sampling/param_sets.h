// The parameter sets of the statistical tests: every sampling parameter alone, and all together.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_PARAM_SETS_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_PARAM_SETS_H_

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sampling/transform/sampling_params.h"

namespace tandem::testing {

struct ParamSet {
  std::string name;
  SamplingParams params;
};
inline void PrintTo(const ParamSet& set, std::ostream* out) { *out << set.name; }

// Returns sets for vocabularies of at least 7 tokens. No set is greedy.
inline std::vector<ParamSet> AllParamSets() {
  std::vector<ParamSet> sets(1);
  sets[0].name = "Default";
  const auto add = [&](std::string name) -> SamplingParams& {
    sets.push_back({std::move(name), {}});
    return sets.back().params;
  };
  add("LowTemperature").temperature = 0.6f;
  add("HighTemperature").temperature = 1.8f;
  add("TopK").top_k = 3;
  add("TopP").top_p = 0.8f;
  add("MinP").min_p = 0.2f;
  add("RepetitionPenalty").repetition_penalty = 1.7f;
  add("PresencePenalty").presence_penalty = 1.2f;
  add("FrequencyPenalty").frequency_penalty = 0.9f;
  add("LogitBias").logit_bias = {{2, 1.5f}, {4, -2.0f}};
  SamplingParams& min_tokens = add("MinTokens");
  min_tokens.min_tokens = 2;
  min_tokens.held_back_token_ids = {0, 5};
  SamplingParams& together = add("Together");
  together.temperature = 1.3f;
  together.top_k = 5;
  together.top_p = 0.9f;
  together.min_p = 0.05f;
  together.repetition_penalty = 1.2f;
  together.presence_penalty = 0.4f;
  together.frequency_penalty = 0.3f;
  together.logit_bias = {{2, 0.7f}, {4, -0.8f}};
  together.min_tokens = 2;
  together.held_back_token_ids = {0, 5};
  return sets;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_PARAM_SETS_H_
