// Accept/reject of one draft block: keeps the longest accepted prefix and picks the token after it.
// Leviathan et al. 2023, Algorithm 1; docs/sampling.md says what is exact and why.
#ifndef TANDEM_KERNELS_SAMPLING_VERIFY_BLOCK_H_
#define TANDEM_KERNELS_SAMPLING_VERIFY_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"

namespace tandem {

inline constexpr int kMaxTopLogProbs = 20;  // that a request may ask for

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
constexpr bool AcceptsDraft(double u, double lenience, double draft_prob, double target_prob) {
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

// ---------------------------------------------------------------- on a GPU

// What VerifyBlock looks at of one draft block. Its K + 1 rows follow each other.
//   draft_token_ids  [K]  in device memory, each in [0, V)
//   draft_log_probs  [K, V]  in device memory, rows V floats apart: the ring's; null: one-hot
struct BlockToVerify {
  int32_t first_row = 0;
  int32_t num_drafted = 0;         // K
  RowDraw how = RowDraw::kGreedy;  // as in the rows' RowToDraw; kPlain: accept/reject
  float lenience = 1;
  const int32_t* draft_token_ids = nullptr;
  const float* draft_log_probs = nullptr;
  DrawKey key;  // of the first judged token; its row i has position + i
};

struct DeviceVerdict {
  int32_t finite = 1;
  // 0: a draft row was no distribution that gives its token (IsDraftRowValid); the whole block was
  // dropped unjudged, whatever was drawn, and next_token_id is as if nothing had been drafted.
  int32_t drafts_valid = 1;
  int32_t num_accepted = 0;
  int32_t next_token_id = -1;
};

// VerifyBlock of many blocks (verify_block_cuda.cu). All arrays are in device memory.
//   blocks         [num_blocks]
//   values         [rows, V]  f32, rows `stride` floats apart: the target's log-probabilities; where
//                  how is greedy, its adjusted logits
//   not_finite     [rows]  as DeviceAdjustArgs gives it
//   row_token_ids  [rows]  of DrawTokens, for blocks that are greedy or coupled
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

// Enqueued on `stream`, nothing waits. INTERNAL: the launch was refused. So with the next.
absl::Status VerifyBlocks(const DeviceVerifyArgs& args, CudaStream stream);

// What is reported of one committed token.
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

// SampleForAudit and ReportLogProbs of the tokens that VerifyBlocks commits (reports_cuda.cu), which
// must have been enqueued before.
//   verify    what VerifyBlocks got
//   logits    [rows, V]  f32, `stride` too: the target's, raw
//   wanted    [num_blocks]
//   reports   [rows]  out: those of a block's first num_accepted + 1 rows, if it wants any
struct DeviceReportArgs {
  DeviceVerifyArgs verify;
  const float* logits = nullptr;
  size_t rows = 0;
  const int32_t* block_of_row = nullptr;  // [rows]
  const ReportToMake* wanted = nullptr;
  DeviceReport* reports = nullptr;
};

absl::Status MakeReports(const DeviceReportArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_VERIFY_BLOCK_H_
