#include "tests/kernels/sampling/distribution/synthetic_model.h"

#include <iterator>

#include "common/token_hash.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/token_counts.h"

namespace tandem::testing {
namespace {

// Returns a number that is about N(0, 1): a sum of four uniforms.
float NormalFrom(uint64_t hash) {
  const auto sum = static_cast<float>((hash & 0xFFFF) + (hash >> 16 & 0xFFFF) +
                                      (hash >> 32 & 0xFFFF) + (hash >> 48));
  return (sum / 65536.0f - 2.0f) * 1.7320508f;
}

void Enumerate(const SyntheticModel& target, const SamplingParams& params, int length,
               std::vector<int32_t>& context, TokenCounts& counts, double probability,
               std::vector<double>& out) {
  const auto num_output_tokens = static_cast<int32_t>(context.size() - std::size(kPrompt));
  if (num_output_tokens == length) {
    out.push_back(probability);
    return;
  }
  std::vector<float> logits(target.vocabulary_size());
  target.Logits(context, logits);
  const std::vector<double> probs =
      SamplingProbsReference(logits, params, counts, num_output_tokens);
  for (int32_t x = 0; x < target.vocabulary_size(); ++x) {
    context.push_back(x);
    counts.Add(x, /*is_output=*/true);
    Enumerate(target, params, length, context, counts, probability * probs[x], out);
    counts.Remove(x, /*is_output=*/true);
    context.pop_back();
  }
}

}  // namespace

SyntheticModel SyntheticModel::Perturbed(uint64_t seed, float spread) const {
  SyntheticModel model = *this;
  model.parts_.push_back({seed, spread});
  return model;
}

SyntheticModel SyntheticModel::Within(int32_t first, int32_t last) const {
  SyntheticModel model = *this;
  model.first_ = first;
  model.last_ = last;
  return model;
}

void SyntheticModel::Logits(std::span<const int32_t> context, std::span<float> logits) const {
  constexpr float kImpossible = -1000.0f;  // a model's logits are finite
  const uint64_t context_hash = HashTokens(context);
  for (int32_t x = 0; x < vocabulary_size_; ++x) {
    float logit = x < first_ || x >= last_ ? kImpossible : 0.0f;
    for (const Part& part : parts_)
      logit += part.spread * NormalFrom(ExtendTokenHash(context_hash ^ part.seed, x));
    logits[x] = logit;
  }
}

std::vector<double> EnumerateTarget(const SyntheticModel& target, const SamplingParams& params,
                                    int length) {
  std::vector<int32_t> context(std::begin(kPrompt), std::end(kPrompt));
  TokenCounts counts;
  for (int32_t id : kPrompt) counts.Add(id, /*is_output=*/false);
  std::vector<double> probabilities;
  Enumerate(target, params, length, context, counts, 1.0, probabilities);
  return probabilities;
}

}  // namespace tandem::testing
