// Accept/reject of one draft block: keeps the longest accepted prefix and picks the token after it.
// Leviathan et al. 2023, Algorithm 1; docs/sampling.md says what is exact and why.
#ifndef TANDEM_KERNELS_SAMPLING_ACCEPT_REJECT_H_
#define TANDEM_KERNELS_SAMPLING_ACCEPT_REJECT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device/stream.h"
#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/random/philox.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"

namespace tandem {

// Largest number of top log-probabilities that a request may ask for.
inline constexpr int kMaxTopLogProbs = 20;

struct TopLogProb {
  int32_t token_id;
  float log_prob;
};
// Log-probabilities of one committed token, from the target's raw logits (temperature 1, no
// transform).
struct TokenLogProbs {
  float log_prob = 0;
  std::vector<TopLogProb> top;  // descending; lower id first among equals
};

// One draft block. Arrays are row-major. K = draft_token_ids.size(), which is 0 for plain decoding.
//   target_logits      [K+1, V]  f32, raw, rows logits_stride floats apart. Row i is read only if
//                                the i draft tokens before it were accepted: other rows may hold
//                                NaN
//   draft_token_ids    [K]       i32, in [0, V)
//   draft_log_probs    [K, V]    f32, contiguous: the distributions that the draft tokens were
//                                drawn from, after all transforms. Null if nothing was drawn: the
//                                tokens were found (one-hot), or are coupled (reproducible)
//   counts             context up to and including the pending token, which is every token before
//                      the first judged one. AcceptReject changes it during its walk over the block
//                      and restores it before it returns
//   num_output_tokens  number of these tokens that are output
//   position           index of the first judged token in the sequence
struct AcceptRejectArgs {
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
  bool finite = true;  // False if a used target row held NaN or infinity; the rest means nothing.
  int32_t num_accepted = 0;    // 0 … K
  int32_t next_token_id = -1;  // recovered (num_accepted < K), bonus (= K > 0) or plain (K = 0)
  std::vector<TokenLogProbs> log_probs;  // num_accepted + 1, when params->num_logprobs >= 0
  std::vector<AuditSample> audit;        // num_accepted + 1, when params->audit and plain sampling
};

// The acceptance test of one draft token. The comparison is strict and has no division: p / q >= u
// would accept a token of p = 0 at u = 0.
constexpr bool AcceptsDraft(double u, double lenience, double draft_prob, double target_prob) {
  return u * lenience * draft_prob < target_prob;
}

// Judges one block. The rule for draft token x depends on the mode of the request:
//   greedy        Accept x while x is the target's argmax. With a lenience l < 1, accept x while
//                 p(x) >= l · max p at temperature 1.
//   reproducible  Accept x while x is the target's own coupled draw.
//   sampled       Accept x if u · l · q(x) < p(x), strictly. Otherwise draw the recovered token
//                 from max(0, p - q), normalized, or from p if max(0, p - q) is zero everywhere.
//   one-hot       Draw from p as plain decoding does, with the draw of the position itself, and
//                 accept x if it is the token that was drawn. The output is that of plain decoding,
//                 token for token. With a lenience l < 1, accept x if u · l < p(x), and otherwise
//                 draw from p without x.
BlockVerdict AcceptReject(const AcceptRejectArgs& args);

// Returns whether a row of the ring may be used as q: each entry is <= 0 (within rounding) or
// -infinity, the probabilities sum to 1 within 1e-3, and q(token) > 0.
bool IsDraftRowValid(std::span<const float> log_probs, int32_t token_id);

// ---------------------------------------------------------------- on a GPU

// How the rows of a block draw their tokens. kPlain: the tokens come from AcceptRejectBlocks.
inline RowDraw DrawOfBlock(const SamplingParams& params, bool has_draft_log_probs) {
  if (params.greedy()) return RowDraw::kGreedy;
  if (params.reproducible) return RowDraw::kCoupled;
  return has_draft_log_probs || params.lenience < 1 ? RowDraw::kPlain : RowDraw::kTarget;
}

// One draft block on a GPU. The K + 1 rows of a block follow each other.
//   draft_token_ids  [K]     i32, in device memory, each in [0, V)
//   draft_log_probs  [K, V]  f32, in device memory, rows V floats apart: rows of the ring. Null if
//                            nothing was drawn
struct BlockToVerify {
  int32_t first_row = 0;
  int32_t num_drafted = 0;  // K
  // The same as in the rows' RowToDraw. kPlain: the rows draw nothing, and the block is judged by
  // accept/reject with draft_log_probs, or with a lenience.
  RowDraw how = RowDraw::kGreedy;
  float lenience = 1;
  const int32_t* draft_token_ids = nullptr;
  const float* draft_log_probs = nullptr;
  DrawKey key;  // key of the first judged token; row i of the block has position + i
};

struct DeviceVerdict {
  int32_t finite = 1;
  // 0 if a draft row is not valid (IsDraftRowValid). The whole block is then dropped unjudged, and
  // next_token_id is the token that plain decoding gives.
  int32_t drafts_valid = 1;
  int32_t num_accepted = 0;
  int32_t next_token_id = -1;
};

// AcceptReject of many blocks (accept_reject_cuda.cu). All arrays are in device memory.
//   blocks         [num_blocks]
//   values         [rows, V]  f32, rows `stride` floats apart: the target's log-probabilities, or
//                             its adjusted logits if the block is greedy
//   not_finite     [rows]  the output of DeviceAdjustArgs
//   row_token_ids  [rows]  the output of DrawTokens, for blocks that are not kPlain
//   verdicts       [num_blocks]  out
struct DeviceVerifyArgs {
  size_t num_blocks = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const BlockToVerify* blocks = nullptr;
  const float* values = nullptr;
  const int32_t* not_finite = nullptr;
  const int32_t* row_token_ids = nullptr;
  DeviceVerdict* verdicts = nullptr;
};

// The work is enqueued on `stream`; the call does not wait. INTERNAL: the launch was refused.
// MakeReports does the same.
absl::Status AcceptRejectBlocks(const DeviceVerifyArgs& args, CudaStream stream);

// The report of one committed token.
struct DeviceReport {
  AuditSample audit;
  float log_prob = 0;
  int32_t num_top = 0;
  TopLogProb top[kMaxTopLogProbs];
};
struct ReportToMake {
  bool audit = false;
  int32_t num_logprobs = -1;  // at most kMaxTopLogProbs; -1: none
};

// SampleForAudit and ReportLogProbs of the tokens that AcceptRejectBlocks commits
// (reports_cuda.cu).
// PRECOND: AcceptRejectBlocks was enqueued before.
//   verify        the arguments of AcceptRejectBlocks
//   logits        [rows, V]  f32, rows `stride` floats apart: the target's raw logits
//   block_of_row  [rows]
//   wanted        [num_blocks]
//   reports       [rows]  out: the reports of a block's first num_accepted + 1 rows, if the block
//                         wants any
struct DeviceReportArgs {
  DeviceVerifyArgs verify;
  const float* logits = nullptr;
  size_t rows = 0;
  const int32_t* block_of_row = nullptr;
  const ReportToMake* wanted = nullptr;
  DeviceReport* reports = nullptr;
};

absl::Status MakeReports(const DeviceReportArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_ACCEPT_REJECT_H_
