// Resolved sampling parameters of one request: no optionals, everything checked by the router.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_SAMPLING_PARAMS_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_SAMPLING_PARAMS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem {

struct SamplingParams {
  float temperature = 1.0f;                           // >= 0; 0 is greedy
  float top_p = 1.0f;                                 // (0, 1]
  int32_t top_k = 0;                                  // <= 0: off
  float min_p = 0.0f;                                 // [0, 1]
  float repetition_penalty = 1.0f;                    // > 0; over prompt and output
  float presence_penalty = 0.0f;                      // over output
  float frequency_penalty = 0.0f;                     // over output
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id -> added logit, each id once
  int32_t min_tokens = 0;                    // until then held_back_token_ids get probability 0
  std::vector<int32_t> held_back_token_ids;  // end of text and stop ids
  uint64_t seed = 0;
  bool reproducible = false;  // Gumbel coupling instead of accept/reject
  float lenience = 1.0f;      // (0, 1]; 1 = lossless
  bool audit = false;         // makes an AuditSample for each token that plain sampling draws
  int32_t num_logprobs =
      -1;  // top-n to report with each token; -1: none asked for, 0: only the token's own

  int32_t num_prompt_logprobs = -1;  // the same for tokens of the prompt

  int32_t num_successors = 0;  // the largest raw logits to report of each row, for a drafter

  bool greedy() const { return temperature == 0.0f; }
  // Returns the number of entries in TokenLogProbs::top. -1: no report is wanted.
  int32_t num_top() const {
    return num_successors > 0 ? std::max(num_logprobs, num_successors) : num_logprobs;
  }
  // Tokens are drawn with uniforms of their own, and not by argmax or with coupled noise.
  bool plain_sampling() const { return !greedy() && !reproducible; }
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_SAMPLING_PARAMS_H_
