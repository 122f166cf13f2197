#include "kernels/sampling/draw.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/sampling/random/coupled_noise.h"
#include "kernels/sampling/random/inverse_cdf.h"
#include "kernels/sampling/transform/row_kernels.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

// The row whose only token is `token_id`.
void FillOneHot(std::span<float> log_probs, int32_t token_id) {
  if (log_probs.empty()) return;
  std::fill(log_probs.begin(), log_probs.end(), -std::numeric_limits<float>::infinity());
  log_probs[token_id] = 0.0f;
}

}  // namespace

int32_t DrawFromLogProbs(std::span<const float> log_probs, double u) {
  const int32_t token_id =
      DrawByInverseCdf(log_probs.size(), u, [&](size_t begin, size_t count, double* weights) {
        return row::Weights(log_probs.subspan(begin, count), weights);
      });
  return token_id >= 0 ? token_id : Argmax(log_probs);
}

int32_t DrawCoupled(std::span<const float> log_probs, const DrawKey& key) {
  const int32_t token_id = CoupledArgmin(log_probs, key);
  return token_id >= 0 ? token_id : Argmax(log_probs);
}

DraftDraw DrawDraftToken(std::span<const float> logits, const SamplingParams& params,
                         const TokenCounts& counts, int32_t num_output_tokens, const DrawKey& key,
                         std::span<float> log_probs, std::span<float> scratch) {
  if (!AllFinite(logits)) return {.finite = false};
  std::span<const float> adjusted = logits;
  if (AdjustsLogits(params, num_output_tokens)) {
    AdjustLogits(logits, params, counts, num_output_tokens, scratch);
    adjusted = scratch;
  }
  if (params.greedy()) {
    const int32_t token_id = Argmax(adjusted);
    FillOneHot(log_probs, token_id);
    return {.token_id = token_id};
  }
  const std::span<float> drawn_from = log_probs.empty() ? scratch : log_probs;
  LogProbs(adjusted, params, drawn_from);
  if (params.reproducible) return {.token_id = DrawCoupled(drawn_from, key)};
  return {.token_id = DrawFromLogProbs(drawn_from, Uniform(key, DrawPurpose::kPropose))};
}

}  // namespace tandem
