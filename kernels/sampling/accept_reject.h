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
#include "kernels/sampling/draft_shape.h"
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

// One draft: a chain or a tree of draft tokens. Arrays are row-major. K = draft_token_ids.size(),
// which is 0 for plain decoding.
//   target_logits      [K+1, V]  f32, raw, rows logits_stride floats apart. Row 0 judges the draft
//                                tokens that follow the pending token, and row i + 1 those that
//                                follow draft token i. A row is read only if the draft tokens that
//                                lead to it were accepted: other rows may hold NaN
//   draft_token_ids    [K]       i32, in [0, V)
//   draft_parents      [K]       i32, as DraftShape says; empty: a chain
//   draft_log_probs    [K - num_found, V]  f32, contiguous. Row i is the distribution that draft
//                                token i was drawn from, after all transforms. For siblings that
//                                were drawn without replacement, it lacks the siblings before. Null
//                                if nothing was drawn: the tokens were found (one-hot), or are
//                                coupled (reproducible)
//   num_found          the last tokens that were found although draft_log_probs is given
//   counts             context up to and including the pending token, which is every token before
//                      the first judged one. AcceptReject changes it during its walk over the draft
//                      and restores it before it returns
//   num_output_tokens  number of these tokens that are output
//   position           index of the first judged token in the sequence
struct AcceptRejectArgs {
  const float* target_logits = nullptr;
  size_t logits_stride = 0;
  size_t vocabulary_size = 0;
  std::span<const int32_t> draft_token_ids = {};
  std::span<const int32_t> draft_parents = {};
  const float* draft_log_probs = nullptr;
  size_t num_found = 0;
  const SamplingParams* params = nullptr;
  TokenCounts* counts = nullptr;
  int32_t num_output_tokens = 0;
  uint64_t position = 0;
  uint8_t drafter = 0;

  DraftShape shape() const {
    return {static_cast<int32_t>(draft_token_ids.size()),
            draft_parents.empty() ? nullptr : draft_parents.data()};
  }
};

struct BlockVerdict {
  bool finite = true;  // False if a used target row held NaN or infinity; the rest means nothing.
  std::vector<int32_t> path;   // the accepted draft tokens, by index, from the first to the last
  int32_t next_token_id = -1;  // recovered (the last accepted token has children), bonus, or plain
  std::vector<TokenLogProbs> log_probs;  // path.size() + 1, when params->num_top() >= 0
  std::vector<AuditSample> audit;        // path.size() + 1, when params->audit and plain sampling

  int32_t num_accepted() const { return static_cast<int32_t>(path.size()); }
};

// The acceptance test of one draft token. The comparison is strict and has no division: p / q >= u
// would accept a token of p = 0 at u = 0.
constexpr bool AcceptsDraft(double u, double lenience, double draft_prob, double target_prob) {
  return u * lenience * draft_prob < target_prob;
}

// Judges one draft. The walk begins after the pending token and goes to an accepted child as long
// as there is one. The rule for the children of a node depends on the mode of the request:
//   greedy        Accept the child that is the target's argmax. With a lenience l < 1 and no such
//                 child, accept the first one with p(x) >= l · max p at temperature 1.
//   reproducible  Accept the child that is the target's own coupled draw.
//   sampled       Test the children in order, with p_0 = p. Accept child x_i if
//                 u_i · l · q_i(x_i) < p_i(x_i), strictly. Otherwise p_(i+1) is max(0, p_i - q_i),
//                 normalized (Residual). After the last one, draw the recovered token from what is
//                 left. A child that was found is accepted if it is the recovered token.
//   one-hot       Draw from p as plain decoding does, with the draw of the position itself, and
//                 accept the child that was drawn. The output is that of plain decoding, token for
//                 token. With a lenience l < 1, test the children in order: accept x_i if
//                 u_i · l < p_i(x_i), where p_i is p without the children before. After the last
//                 one, draw from what is left.
// Child i of a node uses the keys of sibling i.
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

// One draft on a GPU: a chain or a tree of K <= kMaxDraftTokens draft tokens, with at most
// kMaxDraftDepth of them on a path. All arrays are in device memory. The K + 1 rows of a block
// follow each other: row 0 judges the draft tokens that follow the pending token, and row i + 1
// those that follow draft token i.
//   draft_token_ids  [K]  i32, each in [0, V)
//   draft_parents    [K]  i32, as DraftShape says; null: a chain
//   draft_log_probs  [K - num_found, V]  f32, rows V floats apart: rows of the ring, as in
//                         AcceptRejectArgs. Null if nothing was drawn
struct BlockToVerify {
  int32_t first_row = 0;
  int32_t num_drafted = 0;  // K
  int32_t num_found = 0;    // the last tokens that were found although draft_log_probs is given
  // The same as in the rows' RowToDraw. kPlain: the rows draw nothing, and the block is judged by
  // accept/reject with draft_log_probs, or with a lenience.
  RowDraw how = RowDraw::kGreedy;
  float lenience = 1;
  const int32_t* draft_token_ids = nullptr;
  const int32_t* draft_parents = nullptr;
  const float* draft_log_probs = nullptr;
  DrawKey key;  // key of the first judged token; step i of the accepted path has position + i

  constexpr DraftShape shape() const { return {num_drafted, draft_parents}; }
  // Returns the distribution that a draft token was drawn from. Null: the token was found.
  constexpr const float* DraftRow(int32_t token, size_t vocabulary_size) const {
    return draft_log_probs == nullptr || token + num_found >= num_drafted
               ? nullptr
               : draft_log_probs + static_cast<size_t>(token) * vocabulary_size;
  }
};

struct DeviceVerdict {
  int32_t finite = 1;
  // 0 if a draft row is not valid (IsDraftRowValid). The whole block is then dropped unjudged, and
  // next_token_id is the token that plain decoding gives.
  int32_t drafts_valid = 1;
  int32_t num_accepted = 0;
  int32_t next_token_id = -1;
  // The first num_accepted entries are the accepted draft tokens, by index, from the first to the
  // last. The other entries are 0.
  int32_t path[kMaxDraftDepth] = {};
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
//   reports       [rows]  out, if the block wants any. Reports follow the steps of the accepted
//                         path, whatever rows the path goes through: entry first_row + i of a block
//                         is the report of the token at step i, for i = 0 … num_accepted. This is
//                         draft token path[i], and next_token_id at the last step. A block's other
//                         entries are not written
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
