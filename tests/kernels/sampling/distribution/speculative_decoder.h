// The router's loop without the router: rounds of draft draws and block verification over synthetic
// models.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_SPECULATIVE_DECODER_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_SPECULATIVE_DECODER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"

namespace tandem::testing {

struct Drafter {
  SyntheticModel model;
  bool one_hot = false;  // proposes its argmax whatever the request's temperature: no q rows
};

// Draft length of a round (counted from 0) of a request.
using DraftLength = std::function<int32_t(uint64_t seed, int32_t round)>;

// 1 to 4, mixed over rounds and requests; never looks at a draw.
int32_t MixedDraftLength(uint64_t seed, int32_t round);

class SpeculativeDecoder {
 public:
  SpeculativeDecoder(SyntheticModel target, std::optional<Drafter> drafter,
                     DraftLength draft_length);

  // The first `num_tokens` tokens after the prompt. Valid until the next call.
  const std::vector<int32_t>& Generate(const SamplingParams& params, int32_t num_tokens);

  // Counts of all calls so far.
  int64_t num_tested() const { return num_tested_; }  // up to and including the first rejection
  int64_t num_accepted() const { return num_accepted_; }

 private:
  // Fills draft_ and, where rows are exchanged, draft_log_probs_.
  void Propose(const SamplingParams& params, int32_t draft_length);

  SyntheticModel target_;
  std::optional<Drafter> drafter_;
  DraftLength draft_length_;
  size_t vocabulary_size_;
  std::vector<int32_t> sequence_;  // prompt and committed tokens
  std::vector<int32_t> output_;
  std::vector<int32_t> draft_;
  std::vector<float> draft_log_probs_;
  std::vector<float> logits_;
  std::vector<float> scratch_;
  TokenCounts counts_;
  int64_t num_tested_ = 0;
  int64_t num_accepted_ = 0;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_SPECULATIVE_DECODER_H_
