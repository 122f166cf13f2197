// Times the sampling kernels for one row, by vocabulary and setting.
//   bench_sampling
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

// Returns the median time of a call over all repetitions, in microseconds.
double MicrosecondsOf(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kBudget = std::chrono::milliseconds(250);
  std::vector<double> times;
  const auto end = Clock::now() + kBudget;
  while (Clock::now() < end || times.size() < 5) {
    const auto start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

std::vector<std::pair<std::string, SamplingParams>> Settings() {
  std::vector<std::pair<std::string, SamplingParams>> settings;
  const auto add = [&](const char* name) -> SamplingParams& {
    return settings.emplace_back(name, SamplingParams()).second;
  };
  add("greedy").temperature = 0;
  add("temperature 0.8").temperature = 0.8f;
  SamplingParams& audited = add("t 0.8, audited");
  audited.temperature = 0.8f;
  audited.audit = true;
  add("top-k 50").top_k = 50;
  add("top-k 5000").top_k = 5000;
  add("top-p 0.9").top_p = 0.9f;
  add("min-p 0.05").min_p = 0.05f;
  SamplingParams& common = add("t 0.7, k 50, p 0.9");
  common.temperature = 0.7f;
  common.top_k = 50;
  common.top_p = 0.9f;
  add("penalties, 1000 ids").repetition_penalty = 1.1f;
  add("reproducible").reproducible = true;
  SamplingParams& reproducible = add("reproducible, k 50");
  reproducible.reproducible = true;
  reproducible.top_k = 50;
  add("20 log-probs").num_logprobs = 20;
  return settings;
}

void Measure(size_t vocabulary_size, float spread) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> target_logits(2 * vocabulary_size);  // [2, V]
  std::vector<float> draft_logits(vocabulary_size);
  for (float& x : target_logits) x = normal(random);
  for (size_t x = 0; x < vocabulary_size; ++x)
    draft_logits[x] = target_logits[x] + 0.3f * normal(random);
  TokenCounts counts;
  for (int i = 0; i < 1000; ++i)
    counts.Add(static_cast<int32_t>(random() % vocabulary_size), /*is_output=*/true);

  std::printf("\nV = %zu, logits N(0, %.0f²): µs\n%-22s %10s %10s %10s %10s\n", vocabulary_size,
              static_cast<double>(spread), "", "draft", "plain", "accept", "reject");
  std::vector<float> q(vocabulary_size);
  std::vector<float> scratch(vocabulary_size);
  for (auto& [name, params] : Settings()) {
    const bool has_rows = !params.greedy() && !params.reproducible;
    const std::span<float> row = has_rows ? std::span(q) : std::span<float>();
    uint64_t position = 0;
    const double draft = MicrosecondsOf([&] {
      DrawDraftToken(draft_logits, params, counts, 1000, {.seed = 1, .position = ++position}, row,
                     scratch);
    });

    // Measures a plain row, and blocks of one draft token. Each block is drawn outside of the
    // measured time. An accepted block judges two rows. A rejected block judges one row and draws
    // from the residual.
    std::vector<int32_t> drafted(1);
    AcceptRejectArgs args{.target_logits = target_logits.data(),
                          .logits_stride = vocabulary_size,
                          .vocabulary_size = vocabulary_size,
                          .draft_token_ids = {},
                          .params = &params,
                          .counts = &counts,
                          .num_output_tokens = 1000};
    const double plain = MicrosecondsOf([&] {
      args.position = ++position;
      AcceptReject(args);
    });
    args.draft_token_ids = drafted;
    args.draft_log_probs = has_rows ? q.data() : nullptr;
    std::vector<double> accepted;
    std::vector<double> rejected;
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(500);
    while (Clock::now() < end) {
      const DrawKey key{.seed = 1, .position = ++position};
      drafted[0] = DrawDraftToken(draft_logits, params, counts, 1000, key, row, scratch).token_id;
      args.position = position;
      const auto start = Clock::now();
      const BlockVerdict verdict = AcceptReject(args);
      const double time = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      (verdict.num_accepted() == 1 ? accepted : rejected).push_back(time);
    }
    const auto median = [](std::vector<double>& times) {
      if (times.empty()) return std::string("-");
      std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                       times.end());
      char text[32];
      std::snprintf(text, sizeof(text), "%.1f", times[times.size() / 2]);
      return std::string(text);
    };
    std::printf("%-22s %10.1f %10.1f %10s %10s\n", name.c_str(), draft, plain,
                median(accepted).c_str(), median(rejected).c_str());
  }
}

}  // namespace
}  // namespace tandem

int main() {
  std::printf(
      "draft: one draft token; plain: one row without a draft; accept: two rows, one draft token "
      "kept; reject: one row and the"
      " recovered token\n");
  for (const size_t vocabulary_size : {4096, 128'256}) {
    tandem::Measure(vocabulary_size, 1.0f);
    tandem::Measure(vocabulary_size, 3.0f);
  }
  return 0;
}
