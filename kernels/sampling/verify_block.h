// Accept/reject of one draft block: keeps the longest accepted prefix and picks the token after it.
// Leviathan et al. 2023, Algorithm 1; docs/sampling.md says what is exact and why.
#ifndef TANDEM_KERNELS_SAMPLING_VERIFY_BLOCK_H_
#define TANDEM_KERNELS_SAMPLING_VERIFY_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"

namespace tandem {

struct TopLogProb {
  int32_t token_id;
  float log_prob;
};
// Of one committed token, from the target's raw logits (temperature 1, no transform).
struct TokenLogProbs {
  float log_prob = 0;
  std::vector<TopLogProb> top;  // descending; lower id first among equals
};

// Row-major f32; K = draft_token_ids.size(), 0 for plain decoding. PRECOND: draft token ids in [0,
// V).
//   target_logits    [K+1, V]  raw, rows logits_stride floats apart. Row i is read only if the i
//   draft tokens before it were
//                              accepted: NaN further on must not matter.
//   draft_log_probs  [K, V]    contiguous; what each draft token was drawn from, after all
//   transforms. Null: one-hot
//                              (greedy), or not needed (reproducible).
//   counts                     context up to and including the pending token (all tokens before the
//   first judged one).
//                              Changed while walking the block; as it was again on return.
//   num_output_tokens          how many of those are output
//   position                   index in the sequence of the first judged token
struct VerifyBlockArgs {
  const float* target_logits = nullptr;
  size_t logits_stride = 0;
  size_t vocabulary_size = 0;
  std::span<const int32_t> draft_token_ids;
  const float* draft_log_probs = nullptr;
  const SamplingParams* params = nullptr;
  TokenCounts* counts = nullptr;
  int32_t num_output_tokens = 0;
  uint64_t position = 0;
  uint8_t drafter = 0;
};

struct BlockVerdict {
  bool finite = true;  // false: a used target row held NaN or infinity; nothing else means anything
  int32_t num_accepted = 0;    // 0 … K
  int32_t next_token_id = -1;  // recovered (num_accepted < K), bonus (= K > 0) or plain (K = 0)
  std::vector<TokenLogProbs> log_probs;  // num_accepted + 1, when params->num_logprobs >= 0
  std::vector<AuditSample> audit;        // num_accepted + 1, when params->audit and plain sampling
};

// The test of one draft token. Strict and without a division: p / q >= u would let a token of p = 0
// through at u = 0.
inline bool AcceptsDraft(double u, double lenience, double draft_prob, double target_prob) {
  return u * lenience * draft_prob < target_prob;
}

// By mode of the request:
//   greedy        keep while the draft token is the target's argmax (lenience l < 1: while p(x) >=
//   l · max p at temperature 1) reproducible  keep while the draft token is the target's own
//   coupled draw sampled       keep x if u · l · q(x) < p(x), strictly; else draw from norm(max(0,
//   p - q)), or from p if that is all zero
BlockVerdict VerifyBlock(const VerifyBlockArgs& args);

// What the ring's reader checks before it trusts a q row: entries finite or -infinity and <= 0
// (within rounding), sum 1 within 1e-3, q(token) > 0.
bool IsDraftRowValid(std::span<const float> log_probs, int32_t token_id);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_VERIFY_BLOCK_H_
