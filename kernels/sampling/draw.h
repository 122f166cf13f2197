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
  bool finite = true;  // False if a logit is NaN or infinite; token_id then means nothing.
  int32_t token_id = -1;
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

// Keeps the tokens that DrawTokens gave after one pass of a draft loop, and feeds them to the next
// pass without the host (draw_cuda.cu). All arrays are in device memory.
//   drawn   [rows]          the output of DrawTokens
//   fed     [rows]          out, the input of the next pass. 0 if no token was drawn: the row is
//                           computed nevertheless, and its results mean nothing
//   drafts  [rows, stride]  out, column `pass` gets the fed tokens; the penalties of later rows
//                           count them
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
