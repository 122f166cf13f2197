// What the lossless audit keeps of a token that plain sampling drew: two numbers whose law is known
// while the path is lossless. docs/audit.md derives it, and says which positions may be left out.
#ifndef TANDEM_KERNELS_SAMPLING_AUDIT_SAMPLE_H_
#define TANDEM_KERNELS_SAMPLING_AUDIT_SAMPLE_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/philox.h"

namespace tandem {

struct AuditSample {
  // F(x-1) + v · p(x) for the token x, F the sums of p in order of token id, v uniform and keyed by
  // DrawPurpose::kAudit: the randomized probability integral transform, uniform on [0, 1) given all
  // that came before (Rosenblatt 1952; Brockwell 2007). 1 where p(x) = 0: no lossless path commits
  // such a token.
  double uniform = 0;
  // 1[x = argmax q] - p(argmax q), ties to the lowest id: mean zero given all that came before. 0
  // where the position was not drafted.
  double draft_mode_excess = 0;
};

//   target_log_probs  [V]  f32, p: after all transforms, as it was before the draw
//   draft_log_probs   [V]  f32, q; empty: one-hot at `drafted`
//   drafted           the draft token that was judged at this position; -1: none was
//   token_id          the token that was committed: accepted, recovered, bonus or plain
//   key               of this position's draws
// Sums in double. PRECOND: token ids in [0, V).
AuditSample SampleForAudit(std::span<const float> target_log_probs,
                           std::span<const float> draft_log_probs, int32_t drafted,
                           int32_t token_id, const DrawKey& key);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_AUDIT_SAMPLE_H_
