// Draws of one token from one row of log-probabilities.
#ifndef TANDEM_KERNELS_SAMPLING_DRAW_H_
#define TANDEM_KERNELS_SAMPLING_DRAW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"

namespace tandem {

// Inverse CDF in token order, sums in double. Never a token of log-probability -infinity. u in [0,
// 1).
int32_t DrawFromLogProbs(std::span<const float> log_probs, double u);

// argmax_x(log p(x) + G(seed, position, x)), as argmin_x(E(x) / p(x)) with E exponential, 53-bit
// uniforms: the same noise for the drafter's row and the target's (Daliri, Musco, Suresh 2024).
// Ties go to the lowest id.
int32_t DrawCoupled(std::span<const float> log_probs, const DrawKey& key);

// One draft token, from the drafter's raw logits, as the request samples: greedy, coupled or by
// inverse CDF.
struct DraftDraw {
  bool finite = true;  // false: NaN or infinity among the logits, token_id means nothing
  int32_t token_id = -1;
};
//   logits     [V]  f32, the drafter's, raw
//   log_probs  [V]  f32 out: what the token was drawn from (q), after all transforms. Empty: not
//   wanted (greedy, coupled). scratch    [V]  f32, must not overlap the others
DraftDraw DrawDraftToken(std::span<const float> logits, const SamplingParams& params,
                         const TokenCounts& counts, int32_t num_output_tokens, const DrawKey& key,
                         std::span<float> log_probs, std::span<float> scratch);

// ---------------------------------------------------------------- on a GPU

// How a row's token is drawn.
enum class RowDraw : int32_t {
  kNone,     // not here
  kGreedy,   // Argmax
  kCoupled,  // DrawCoupled
  kPlain,    // DrawFromLogProbs with the key's uniform for DrawPurpose::kPropose
};
struct RowToDraw {
  RowDraw how = RowDraw::kNone;
  DrawKey key;
};

// One token of each of many rows (draw_cuda.cu). All arrays are in device memory.
//   draws       [rows]
//   values      [rows, vocabulary_size]  f32, rows `stride` floats apart: log-probabilities; where
//               the draw is greedy, adjusted logits
//   not_finite  [rows]  as DeviceAdjustArgs gives it
//   token_ids   [rows]  out; -1 where the row is not finite or not drawn from
// The uniforms are the CPU's bit for bit; sums and scores are doubles added in another order, so
// that a draw within 2^-50 of a boundary may fall to the other side. A row's token does not depend
// on the other rows.
struct DeviceDrawArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const RowToDraw* draws = nullptr;
  const float* values = nullptr;
  const int32_t* not_finite = nullptr;
  int32_t* token_ids = nullptr;
};

// Enqueued on `stream`, nothing waits. INTERNAL: the launch was refused.
absl::Status DrawTokens(const DeviceDrawArgs& args, CudaStream stream);

// What a draft loop does with the tokens that DrawTokens gave after one of its passes (draw_cuda.cu):
// keeps them, and feeds them to the next, without the host. All arrays are in device memory.
//   drawn   [rows]          of DrawTokens
//   fed     [rows]          out: for the next pass; 0 where none was drawn: that row is computed all
//                           the same, and what comes of it means nothing
//   drafts  [rows, stride]  out: column `pass`, as fed: what counts for penalties of later rows
//   record  [rows, stride]  out: column `pass`, as drawn
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
