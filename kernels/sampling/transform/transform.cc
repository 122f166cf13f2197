#include "kernels/sampling/transform/transform.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/sampling/transform/cuts.h"
#include "kernels/sampling/transform/row_kernels.h"

namespace tandem {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Penalties and biases must not turn a finite logit into infinity: infinity minus infinity is NaN.
float ToFiniteFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kLargest, kLargest));
}

bool HoldsBack(const SamplingParams& params, int32_t num_output_tokens) {
  return num_output_tokens < params.min_tokens && !params.held_back_token_ids.empty();
}

// A distribution needs a token, so a mask over the whole vocabulary is not applied.
bool HoldsBackEverything(const SamplingParams& params, size_t vocabulary_size) {
  if (params.held_back_token_ids.size() < vocabulary_size) return false;
  return std::set<int32_t>(params.held_back_token_ids.begin(), params.held_back_token_ids.end())
             .size() == vocabulary_size;
}

}  // namespace

float PenalizedLogit(float logit, const SamplingParams& params, const TokenCounts::Count& count) {
  const double repetition = params.repetition_penalty;
  double penalized = logit > 0 ? logit / repetition : logit * repetition;
  if (count.output > 0) {
    penalized -= static_cast<double>(params.presence_penalty);
    penalized -= static_cast<double>(params.frequency_penalty) * count.output;
  }
  return ToFiniteFloat(penalized);
}

float BiasedLogit(float logit, float bias) {
  return ToFiniteFloat(static_cast<double>(logit) + static_cast<double>(bias));
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

bool AdjustsLogits(const SamplingParams& params, int32_t num_output_tokens) {
  return HasPenalties(params) || !params.logit_bias.empty() || HoldsBack(params, num_output_tokens);
}

std::span<const int32_t> HeldBack(const SamplingParams& params, int32_t num_output_tokens,
                                  size_t vocabulary_size) {
  if (!HoldsBack(params, num_output_tokens) || HoldsBackEverything(params, vocabulary_size)) {
    return {};
  }
  return params.held_back_token_ids;
}

bool AllFinite(std::span<const float> logits) { return row::IsFinite(logits); }

void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenCounts& counts, int32_t num_output_tokens, std::span<float> adjusted) {
  if (adjusted.data() != logits.data()) std::copy(logits.begin(), logits.end(), adjusted.begin());
  if (HasPenalties(params)) {
    for (const auto& [token_id, count] : counts.counts()) {
      adjusted[token_id] = PenalizedLogit(adjusted[token_id], params, count);
    }
  }
  for (const auto& [token_id, bias] : params.logit_bias) {
    adjusted[token_id] = BiasedLogit(adjusted[token_id], bias);
  }
  for (int32_t token_id : HeldBack(params, num_output_tokens, logits.size())) {
    adjusted[token_id] = kMinusInfinity;
  }
}

void LogProbs(std::span<const float> adjusted, const SamplingParams& params,
              std::span<float> log_probs) {
  const float max = row::Max(adjusted);
  row::Cut top_k;
  if (params.top_k > 0) top_k = TopKCut(adjusted, static_cast<size_t>(params.top_k));
  double sum = row::Scale(adjusted, max, params.temperature, top_k, log_probs.data());
  if (params.top_p < 1.0f || params.min_p > 0.0f) {
    row::Cut top_p;
    if (params.top_p < 1.0f) top_p = TopPCut(log_probs, params.top_p, sum);
    const double floor = std::log(static_cast<double>(params.min_p));  // min_p 0: -infinity
    sum = row::Truncate(log_probs, top_p, static_cast<float>(floor));
  }
  row::Subtract(log_probs, static_cast<float>(std::log(sum)));
}

int32_t Argmax(std::span<const float> values) {
  return static_cast<int32_t>(row::Find(values, row::Max(values)));
}

}  // namespace tandem
