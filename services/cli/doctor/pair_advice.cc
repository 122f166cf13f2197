#include "services/cli/doctor/pair_advice.h"

#include "services/cli/bench/predictions.h"

namespace tandem::cli {

namespace {

constexpr int kMaxDraftLength = 16;
// Memory that the weights may take. The rest is for KV caches and everything else.
constexpr double kWeightShare = 0.8;

constexpr uint64_t Billions(double parameters) {
  return static_cast<uint64_t>(parameters * 1e9 * 2);  // BF16
}

}  // namespace

std::vector<ModelPair> KnownPairs() {
  // The larger models of Qwen2.5 are left out, because their vocabularies have another size than
  // that of the 0.5B. Numbers of parameters are from the models' cards, without untied embeddings,
  // of which a pass reads
  // one row. Acceptance depends on the text: these are cautious values for chat and prose.
  return {
      {"Qwen2.5-1.5B", "Qwen2.5-0.5B", Billions(1.54), Billions(0.49), 0.65},
      {"Llama-3.2-3B", "Llama-3.2-1B", Billions(3.21), Billions(1.24), 0.75},
      {"Qwen2.5-3B", "Qwen2.5-0.5B", Billions(3.09), Billions(0.49), 0.65},
      {"Qwen3-4B", "Qwen3-0.6B", Billions(4.02), Billions(0.60), 0.65},
      {"Llama-3.1-8B", "Llama-3.2-1B", Billions(7.50), Billions(1.24), 0.7},
      {"Qwen3-8B", "Qwen3-0.6B", Billions(7.57), Billions(0.60), 0.65},
      {"Qwen3-14B", "Qwen3-0.6B", Billions(13.99), Billions(0.60), 0.65},
      {"Llama-3.1-70B", "Llama-3.2-1B", Billions(69.5), Billions(1.24), 0.7},
  };
}

PairAdvice AdvisePair(const ModelPair& pair, const RoundModel& round, uint64_t memory_bytes) {
  PairAdvice advice{.pair = pair};
  advice.fits = static_cast<double>(pair.target_bytes + pair.draft_bytes) <=
                kWeightShare * static_cast<double>(memory_bytes);
  const double pass_seconds = static_cast<double>(pair.target_bytes) / round.bytes_per_second;
  advice.plain_seconds = pass_seconds + round.exchange_seconds;
  const double draft_seconds = static_cast<double>(pair.draft_bytes) / round.bytes_per_second;
  for (int length = 1; length <= kMaxDraftLength; ++length) {
    const RoundCosts costs = {
        .plain_round = advice.plain_seconds,
        .draft_step = draft_seconds,
        .verify_round = pass_seconds * (1 + round.extra_row_fraction * length),
        .round_overhead = 2 * round.exchange_seconds};
    const double speedup = PredictedSpeedup(pair.alpha, length, costs);
    if (speedup <= advice.speedup) continue;
    advice.speedup = speedup;
    advice.draft_length = length;
  }
  return advice;
}

}  // namespace tandem::cli
