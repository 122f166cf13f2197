// The two numbers that the lossless audit keeps for a token that plain sampling drew. Their
// distribution is known as long as the path is lossless. docs/audit.md derives the distribution and
// says which positions may be left out.
#ifndef TANDEM_KERNELS_SAMPLING_AUDIT_SAMPLE_H_
#define TANDEM_KERNELS_SAMPLING_AUDIT_SAMPLE_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/random/philox.h"

namespace tandem {

struct AuditSample {
  // F(x-1) + v · p(x) for the token x. F are the sums of p in the order of token ids, and v is
  // uniform and keyed by DrawPurpose::kAudit. This is the randomized probability integral
  // transform: it is uniform on [0, 1) given everything before it (Rosenblatt 1952; Brockwell
  // 2007). It is 1 if p(x) = 0, because no lossless path commits such a token.
  double uniform = 0;
  // 1[x in C] - p(C) for a set C that is known before the draw. Its mean is zero given everything
  // before it. C is the argmax of the first tested q, with ties going to the lowest id, or the set
  // of the draft tokens if they were found. It is 0 if the position was not drafted.
  double draft_mode_excess = 0;
};

// Computes both numbers for one committed token.
//   target_log_probs  [V]  f32, p after all transforms, before the draw
//   draft_log_probs   [V]  f32, q of the first draft token; empty: the draft tokens were found
//   drafted           the draft tokens that were judged at this position; empty: there were none
//   token_id          the token that was committed: accepted, recovered, bonus or plain
//   key               the key of this position's draws
// Sums are doubles. PRECOND: token ids in [0, V).
AuditSample SampleForAudit(std::span<const float> target_log_probs,
                           std::span<const float> draft_log_probs, std::span<const int32_t> drafted,
                           int32_t token_id, const DrawKey& key);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_AUDIT_SAMPLE_H_
