// The router's loop without the router. Runs rounds of draft draws and block verification over
// synthetic models.
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
  bool one_hot = false;  // always proposes its argmax, without q rows, at any temperature
};

// Returns the draft length of a request's round. Rounds are counted from 0.
using DraftLength = std::function<int32_t(uint64_t seed, int32_t round)>;

// Returns 1 to 4, mixed over rounds and requests. The result does not depend on any draw.
int32_t MixedDraftLength(uint64_t seed, int32_t round);

class SpeculativeDecoder {
 public:
  SpeculativeDecoder(SyntheticModel target, std::optional<Drafter> drafter,
                     DraftLength draft_length);

  // Returns the first `num_tokens` tokens after the prompt. Valid until the next call.
  const std::vector<int32_t>& Generate(const SamplingParams& params, int32_t num_tokens);

  // These counts cover all calls so far.
  int64_t num_tested() const { return num_tested_; }  // up to and including the first rejection
  int64_t num_accepted() const { return num_accepted_; }

 private:
  // Fills draft_. If rows are exchanged, also fills draft_log_probs_.
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
