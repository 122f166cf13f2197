// The audit finds the counterexamples of drafting, and noise that belongs to nodes. One mistake is
// out of its reach: the audit samples no request whose seed is the client's, and only with such
// seeds do several requests share their numbers (docs/audit.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "services/router/audit/audit_monitor.h"
#include "services/router/drafting/drafter_set.h"
#include "tests/kernels/sampling/distribution/counterexample.h"
#include "tests/kernels/sampling/distribution/speculative_decoder.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"
#include "tests/kernels/sampling/distribution/tree_decoder.h"

namespace tandem::testing::counterexample_audit_test {
namespace {

void Audit(std::span<const AuditSample> samples, AuditMonitor& monitor) {
  google::protobuf::RepeatedPtrField<v1::AuditSample> sent;
  for (const AuditSample& sample : samples) {
    v1::AuditSample& written = *sent.Add();
    written.set_uniform(sample.uniform);
    written.set_draft_mode_excess(sample.draft_mode_excess);
  }
  EXPECT_TRUE(monitor.OnSamples(tandem::Drafter::kModel, sent).ok());
}

// Audits the tokens of the counterexample until the alarm, or until `most` of them. Returns their
// number.
int64_t TokensToAlarm(const Counterexample& example, bool breaks_rule, uint64_t first_seed,
                      int64_t most, AuditMonitor& monitor) {
  int64_t num_tokens = 0;
  for (; num_tokens < most && !monitor.failed(); ++num_tokens) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(num_tokens);
    const AuditSample sample = example.draw(seed, breaks_rule).sample;
    Audit({&sample, 1}, monitor);
  }
  return num_tokens;
}

// A counterexample, and the number of its tokens within which every run must find it.
struct Stated {
  Counterexample example;
  int64_t most_tokens;
};
void PrintTo(const Stated& stated, std::ostream* out) { *out << stated.example.name; }

class AuditedCounterexampleTest : public ::testing::TestWithParam<Stated> {};

TEST_P(AuditedCounterexampleTest, IsSeenWithinTheStatedTokens) {
  const auto& [example, most_tokens] = GetParam();
  std::vector<int64_t> tokens;
  for (uint64_t run = 0; run < 11; ++run) {
    AuditMonitor monitor;
    tokens.push_back(
        TokensToAlarm(example, /*breaks_rule=*/true, run * 10'000'000, most_tokens, monitor));
    EXPECT_TRUE(monitor.stats().biased()) << "run " << run;
  }
  std::sort(tokens.begin(), tokens.end());
  std::printf("%-16s tokens to the alarm: median %6.0f, most %6.0f\n", example.name.c_str(),
              static_cast<double>(tokens[tokens.size() / 2]), static_cast<double>(tokens.back()));
}

TEST_P(AuditedCounterexampleTest, RaisesNoAlarmWhileTheRuleIsKept) {
  AuditMonitor monitor;
  TokensToAlarm(GetParam().example, /*breaks_rule=*/false, 0, 300'000, monitor);
  EXPECT_FALSE(monitor.failed()) << monitor.TakeAlarm();
}

INSTANTIATE_TEST_SUITE_P(All, AuditedCounterexampleTest,
                         ::testing::Values(Stated{SortedSiblings(), 1'000},
                                           Stated{SharedUniform(), 40'000},
                                           Stated{DroppedDuplicate(), 80'000},
                                           Stated{FoundFirst(), 10'000},
                                           Stated{EarlierDraft(), 1'000}),
                         [](const auto& test) { return test.param.example.name; });

// ---------------------------------------------------------------- predictions

// The seeds that the router draws are those that are sampled. With them, the old rule for tokens
// that were found gives the target's distribution, and there is nothing to find.
TEST(AuditOfPredictionsTest, SeesNothingOfTheOldRuleWithTheSeedsThatItSamples) {
  AuditMonitor monitor;
  TokensToAlarm(PredictionWithOwnSeeds(), /*breaks_rule=*/true, 0, 1'000'000, monitor);
  EXPECT_FALSE(monitor.failed()) << monitor.TakeAlarm();
}

// A prediction that was made with the same seed is the very token that is drawn, so a set of draft
// tokens is not known before the draw. Samples of such requests would accuse the right rule.
TEST(AuditOfPredictionsTest, WouldAccuseTheRightRuleWithTheSeedsOfClients) {
  AuditMonitor monitor;
  EXPECT_LT(TokensToAlarm(Prediction(), /*breaks_rule=*/false, 0, 1'000, monitor), 1'000);
}

// The first number alone, over requests with different seeds, tells the rules apart. Nobody but a
// test can see to it that no two samples have one seed.
TEST(AuditOfPredictionsTest, TheTransformsOfOneAnswerOfEachSeedTellTheRulesApart) {
  const auto tokens_to_alarm = [](bool breaks_rule, int64_t most) {
    AuditMonitor monitor;
    int64_t num_tokens = 0;
    for (; num_tokens < most && !monitor.failed(); ++num_tokens) {
      AuditSample sample = Prediction().draw(static_cast<uint64_t>(num_tokens), breaks_rule).sample;
      sample.draft_mode_excess = 0;
      Audit({&sample, 1}, monitor);
    }
    return num_tokens;
  };
  EXPECT_EQ(tokens_to_alarm(/*breaks_rule=*/false, 300'000), 300'000);
  const int64_t tokens = tokens_to_alarm(/*breaks_rule=*/true, 10'000);
  EXPECT_LT(tokens, 10'000);
  std::printf("Prediction: tokens to the alarm by the transforms: %.0f\n",
              static_cast<double>(tokens));
}

// ---------------------------------------------------------------- trees

constexpr size_t kOutputTokens = 48;

TreeScenario ScenarioOf(TreeKind kind, TreeMistake mistake) {
  const SyntheticModel target(7, 31, 2.0f);
  return {target, {target.Perturbed(32, 2.0f)}, kind, mistake};
}

// Decodes requests with trees and replays each of them without drafts, until the monitor has failed
// or until 200 requests. Returns the number of requests.
int ReplaysToAlarm(TreeMistake mistake, AuditMonitor& monitor) {
  const TreeScenario scenario = ScenarioOf(TreeKind::kCoupled, mistake);
  TreeDecoder decoder(scenario);
  SpeculativeDecoder plain(scenario.target, std::nullopt, MixedDraftLength);
  SamplingParams params;
  params.reproducible = true;
  for (params.seed = 0; params.seed < 200 && !monitor.failed(); ++params.seed) {
    decoder.Start(params, kPrompt);
    while (decoder.output().size() < kOutputTokens) decoder.Round();
    const std::vector<int32_t>& replayed = plain.Generate(params, kOutputTokens);
    std::optional<ReplayMismatch> mismatch;
    for (size_t i = 0; i < kOutputTokens && !mismatch.has_value(); ++i) {
      if (decoder.output()[i] == replayed[i]) continue;
      mismatch = {static_cast<uint32_t>(i), decoder.output()[i], replayed[i]};
    }
    monitor.OnReplay("request", mismatch);
  }
  return static_cast<int>(params.seed);
}

// Reproducible requests are not sampled. Their replays have no trees, and so no noise of nodes.
TEST(AuditedTreeTest, ReplaysSeeNoiseThatBelongsToNodes) {
  AuditMonitor honest;
  EXPECT_EQ(ReplaysToAlarm(TreeMistake::kNone, honest), 200);
  EXPECT_FALSE(honest.failed());
  AuditMonitor monitor;
  EXPECT_LE(ReplaysToAlarm(TreeMistake::kNoisePerNode, monitor), 5);
  EXPECT_TRUE(monitor.failed());
}

}  // namespace
}  // namespace tandem::testing::counterexample_audit_test
