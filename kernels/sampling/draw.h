// Draws of one token from one row of log-probabilities.
#ifndef TANDEM_KERNELS_SAMPLING_DRAW_H_
#define TANDEM_KERNELS_SAMPLING_DRAW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/device/stream.h"
#include "kernels/sampling/random/philox.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"

namespace tandem {

// Draws by inverse CDF in token order, with sums in double. Never returns a token of
// log-probability -infinity. PRECOND: u is in [0, 1).
int32_t DrawFromLogProbs(std::span<const float> log_probs, double u);

// Returns argmax_x(log p(x) + G(seed, position, x)), computed as argmin_x(E(x) / p(x)) with an
// exponential E made of 53-bit uniforms. The drafter's row and the target's row meet the same noise
// (Daliri, Musco, Suresh 2024). Ties go to the lowest id.
int32_t DrawCoupled(std::span<const float> log_probs, const DrawKey& key);

// The result of DrawDraftToken.
struct DraftDraw {
  bool finite = true;  // False if a logit is NaN or infinite; the rest then means nothing.
  int32_t token_id = -1;
  // [V]  what the token was drawn from: log-probabilities, or adjusted logits if the draw is
  // greedy. They lie in one of the arguments of DrawDraftToken
  std::span<const float> drawn_from = {};
};
// Draws one draft token from the drafter's raw logits in the way that the request samples: greedy,
// coupled, or by inverse CDF.
//   logits     [V]  f32, the drafter's raw logits
//   log_probs  [V]  f32 out, the distribution q that the token was drawn from, after all
//                   transforms. Empty if it is not wanted (greedy, coupled)
//   scratch    [V]  f32, must not overlap the others
DraftDraw DrawDraftToken(std::span<const float> logits, const SamplingParams& params,
                         const TokenCounts& counts, int32_t num_output_tokens, const DrawKey& key,
                         std::span<float> log_probs, std::span<float> scratch);

// Draws another token for the position of a draft token: a sibling in a tree. It is drawn in the
// same way, from the distribution without the token before it, so siblings are drawn without
// replacement (Kool et al. 2019, arXiv 1903.06059; Yang et al. 2024, "Multi-candidate speculative
// decoding", arXiv 2401.06706). Where no other token is possible, the token before is drawn again,
// and the judge gains nothing from it.
//   before  the draw of the first token of the position, or of the sibling before this one
//   key     that of the first token, with the number of this sibling
//   row     [V]  f32 out, what the sibling was drawn from. before.drawn_from may be the same memory
DraftDraw DrawSibling(const DraftDraw& before, const SamplingParams& params, const DrawKey& key,
                      std::span<float> row);

// ---------------------------------------------------------------- on a GPU

// How a row's token is drawn.
enum class RowDraw : int32_t {
  kNone,     // no token is drawn from this row
  kGreedy,   // Argmax
  kCoupled,  // DrawCoupled
  kPlain,    // DrawFromLogProbs with the key's uniform for DrawPurpose::kPropose
  kTarget,   // DrawFromLogProbs with TargetUniform: the token that plain decoding draws
};
struct RowToDraw {
  RowDraw how = RowDraw::kNone;
  DrawKey key;
};

// Draws one token from each of many rows (draw_cuda.cu). All arrays are in device memory.
//   draws       [rows]
//   values      [rows, vocabulary_size]  f32, rows `stride` floats apart: log-probabilities, or
//                                        adjusted logits if the draw is greedy
//   not_finite  [rows]  the output of DeviceAdjustArgs
//   token_ids   [rows]  out; -1 if the row is not finite or no token is drawn from it
// The uniforms are those of the CPU, bit for bit. Sums and scores are doubles that are added in
// another order, so a draw within 2^-50 of a boundary may fall to the other side. A row's token
// does not depend on the other rows.
struct DeviceDrawArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const RowToDraw* draws = nullptr;
  const float* values = nullptr;
  const int32_t* not_finite = nullptr;
  int32_t* token_ids = nullptr;
};

// The work is enqueued on `stream`; the call does not wait. INTERNAL: the launch was refused.
absl::Status DrawTokens(const DeviceDrawArgs& args, CudaStream stream);

// Takes the tokens that were drawn out of their rows, so that the next draw gives siblings, as in
// DrawSibling (draw_cuda.cu). All arrays are in device memory. A row of which nothing would be left
// stays as it is. So does a row for which `draws` has kNone.
//   draws      [rows]  of the next draw
//   values     [rows, vocabulary_size]  f32, rows `stride` floats apart: in and out, as in
//                                       DeviceDrawArgs. Log-probabilities are normalized again if
//                                       the draw is kPlain; other draws do not depend on that
//   token_ids  [rows]  the output of the last DrawTokens; -1: nothing is taken out
struct DeviceLeaveOutArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const RowToDraw* draws = nullptr;
  float* values = nullptr;
  const int32_t* token_ids = nullptr;
};

absl::Status LeaveOutTokens(const DeviceLeaveOutArgs& args, CudaStream stream);

// Keeps the tokens that DrawTokens gave after one pass of a draft loop, and feeds them to the next
// pass without the host (draw_cuda.cu). All arrays are in device memory.
//   drawn   [rows]          the output of DrawTokens
//   fed     [rows]          out, the input of the next pass. 0 if no token was drawn: the row is
//                           computed nevertheless, and its results mean nothing. Null: the tokens
//                           are siblings, which are not fed
//   drafts  [rows, stride]  out, column `pass` gets the fed tokens; the penalties of later rows
//                           count them. Null if `fed` is
//   record  [rows, stride]  out, column `pass` gets the drawn tokens
struct DeviceDraftArgs {
  size_t rows = 0;
  size_t pass = 0;
  size_t stride = 0;
  const int32_t* drawn = nullptr;
  int32_t* fed = nullptr;
  int32_t* drafts = nullptr;
  int32_t* record = nullptr;
};

absl::Status KeepDrafts(const DeviceDraftArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_DRAW_H_
