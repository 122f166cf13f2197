#include "kernels/sampling/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
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

// Draws from a row in the way of the request. The noise of coupled draws does not depend on the
// sibling of the key.
int32_t DrawAgain(std::span<const float> row, const SamplingParams& params, const DrawKey& key) {
  if (params.greedy()) return Argmax(row);
  if (params.reproducible) return DrawCoupled(row, key);
  return DrawFromLogProbs(row, Uniform(key, DrawPurpose::kPropose));
}

// Takes a token out of a row that tokens are drawn from. A row of which nothing would be left stays
// as it is.
void LeaveOut(int32_t token_id, const SamplingParams& params, std::span<float> row) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const float value = std::exchange(row[static_cast<size_t>(token_id)], kNever);
  const float most = row::Max(row);
  if (most == kNever) {
    row[static_cast<size_t>(token_id)] = value;
  } else if (!params.greedy() && !params.reproducible) {
    // What is left may be so unlikely that its probability is no normal float.
    const double sum = row::SumExp(row, most);
    row::Subtract(row, most);
    row::Subtract(row, static_cast<float>(std::log(sum)));
  }
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
    return {.token_id = token_id, .drawn_from = adjusted};
  }
  const std::span<float> drawn_from = log_probs.empty() ? scratch : log_probs;
  LogProbs(adjusted, params, drawn_from);
  return {.token_id = DrawAgain(drawn_from, params, key), .drawn_from = drawn_from};
}

DraftDraw DrawSibling(const DraftDraw& before, const SamplingParams& params, const DrawKey& key,
                      std::span<float> row) {
  const std::span<const float> from = before.drawn_from;
  if (row.data() != from.data()) std::copy(from.begin(), from.end(), row.begin());
  LeaveOut(before.token_id, params, row);
  return {.token_id = DrawAgain(row, params, key), .drawn_from = row};
}

}  // namespace tandem
