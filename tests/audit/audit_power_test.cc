// The power of the lossless audit, with the real accept/reject step and the real monitor. There is
// no alarm over two million honest tokens. Each planted mistake is found within the number of
// tokens that docs/audit.md states. An honest path raises an alarm with probability at most 1e-6
// (AuditMonitor::kFalseAlarmProbability).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "services/router/audit/audit_monitor.h"
#include "tests/audit/audited_decoder.h"
#include "tests/kernels/sampling/distribution/tree_decoder.h"
#include "tests/kernels/sampling/param_sets.h"

namespace tandem::testing {
namespace {

constexpr int32_t kVocabularySize = 32;

// A drafter that is nearly right: about 70% of its tokens are accepted.
AuditScenario Scenario(Mistake mistake) {
  const SyntheticModel target(kVocabularySize, 31, 2.0f);
  AuditScenario scenario{.target = target, .drafter = target.Perturbed(32, 0.8f), .params = {}};
  scenario.params.top_k = 12;
  scenario.mistake = mistake;
  return scenario;
}

absl::Status Feed(std::span<const AuditSample> samples, std::optional<Drafter> drafter,
                  AuditMonitor& monitor) {
  google::protobuf::RepeatedPtrField<v1::AuditSample> sent;
  for (const AuditSample& sample : samples) {
    v1::AuditSample& written = *sent.Add();
    written.set_uniform(sample.uniform);
    written.set_draft_mode_excess(sample.draft_mode_excess);
  }
  return monitor.OnSamples(drafter, sent);
}

// Decodes until the alarm. The samples count for `drafter`, or for rounds without a draft if the
// scenario has no drafter. Returns the number of tokens, or a number above `most` without an alarm.
int64_t TokensToAlarm(const AuditScenario& scenario, Drafter drafter, uint64_t random_seed,
                      int64_t most, AuditMonitor& monitor) {
  const std::optional<Drafter> source =
      scenario.drafter.has_value() ? std::optional(drafter) : std::nullopt;
  AuditedDecoder decoder(scenario, random_seed);
  const auto start = static_cast<int64_t>(monitor.stats().num_samples());
  int64_t num_tokens = 0;
  while (num_tokens <= most && !monitor.failed()) {
    EXPECT_TRUE(Feed(decoder.Round(), source, monitor).ok());
    num_tokens = static_cast<int64_t>(monitor.stats().num_samples()) - start;
  }
  return num_tokens;
}

TEST(HonestTokensTest, RaiseNoAlarmWithAnyParametersAndDrafter) {
  constexpr int64_t kTokens = 40'000;  // tokens of each combination
  AuditMonitor monitor;
  uint64_t random_seed = 0;
  for (const ParamSet& set : AllParamSets()) {
    AuditScenario good = Scenario(Mistake::kNone);
    good.params = set.params;
    AuditScenario one_hot = good;
    one_hot.one_hot_drafter = true;
    AuditScenario unrelated = good;
    unrelated.drafter = SyntheticModel(kVocabularySize, 77, 2.0f);
    AuditScenario plain = good;
    plain.drafter.reset();
    for (const AuditScenario& scenario : {good, one_hot, unrelated, plain}) {
      const auto drafter = static_cast<Drafter>(++random_seed % kNumDrafters);
      TokensToAlarm(scenario, drafter, random_seed, kTokens, monitor);
      ASSERT_FALSE(monitor.failed()) << set.name << ": " << monitor.TakeAlarm();
    }
  }
  const v1::AuditStats stats = monitor.stats();
  EXPECT_GT(stats.num_samples(), 1'900'000);
  EXPECT_EQ(stats.drafters_size(), static_cast<int>(kNumDrafters) + 1);
  for (const v1::AuditDrafterStats& drafter : stats.drafters()) {
    EXPECT_LT(std::abs(drafter.uniformity_z()), 5.5) << drafter.name();
    EXPECT_LT(std::abs(drafter.draft_mode_z()), 5.5) << drafter.name();
  }
  EXPECT_LT(std::abs(stats.uniformity_z()), 5.5);
  EXPECT_LT(std::abs(stats.draft_mode_z()), 5.5);
  std::printf("%.0f honest tokens: uniformity z %.2f, draft mode z %.2f\n",
              static_cast<double>(stats.num_samples()), stats.uniformity_z(), stats.draft_mode_z());
}

// A mistake, and the number of tokens within which every run must find it.
struct Planted {
  std::string name;
  Mistake mistake;
  int64_t most_tokens;
  bool top_k = true;  // false: nothing is cut, and no token is impossible
  int runs = 11;
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class PlantedMistakeTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedMistakeTest, IsSeenWithinTheStatedTokens) {
  const Planted& planted = GetParam();
  AuditScenario scenario = Scenario(planted.mistake);
  if (!planted.top_k) scenario.params.top_k = 0;
  std::vector<int64_t> tokens;
  double uniformity_z = 0;
  double draft_mode_z = 0;
  for (int run = 0; run < planted.runs; ++run) {
    AuditMonitor monitor;
    tokens.push_back(
        TokensToAlarm(scenario, Drafter::kModel, 1000 + run, planted.most_tokens, monitor));
    EXPECT_TRUE(monitor.stats().biased()) << "run " << run;
    uniformity_z += monitor.stats().uniformity_z() / planted.runs;
    draft_mode_z += monitor.stats().draft_mode_z() / planted.runs;
  }
  std::sort(tokens.begin(), tokens.end());
  std::printf("%-38s tokens to the alarm: median %6.0f, most %6.0f; mean z %4.1f, %4.1f\n",
              planted.name.c_str(), static_cast<double>(tokens[tokens.size() / 2]),
              static_cast<double>(tokens.back()), uniformity_z, draft_mode_z);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedMistakeTest,
    ::testing::Values(
        Planted{"Lenience", Mistake::kLenience, 15'000},
        Planted{"LenienceWithoutCuts", Mistake::kLenience, 15'000, false},
        Planted{"DraftRowsBeforeTopK", Mistake::kDraftRowsBeforeTopK, 250'000},
        Planted{"ProposalSharesAcceptUniform", Mistake::kProposalSharesAcceptUniform, 15'000},
        Planted{"AcceptsAtEquality", Mistake::kAcceptsAtEquality, 120'000},
        Planted{"ResidualIsAbsoluteDifference", Mistake::kResidualIsAbsoluteDifference, 2'000},
        Planted{"ResidualIsAbsoluteDifferenceWithoutCuts", Mistake::kResidualIsAbsoluteDifference,
                50'000, false},
        Planted{"ResidualIsTarget", Mistake::kResidualIsTarget, 15'000},
        Planted{"SharedUniform", Mistake::kSharedUniform, 20'000},
        Planted{"SharedGumbelNoise", Mistake::kSharedGumbelNoise, 1'600'000, true, 5},
        Planted{"BonusFromWrongRow", Mistake::kBonusFromWrongRow, 500},
        Planted{"BonusFromWrongRowWithoutCuts", Mistake::kBonusFromWrongRow, 50'000, false},
        Planted{"DropsUnlikelyDrafts", Mistake::kDropsUnlikelyDrafts, 5'000}),
    [](const auto& test) { return test.param.name; });

// A mistake of a drafter that made one round in twenty. The other rounds are honest.
struct PlantedInRare {
  std::string name;
  Mistake mistake;
  int64_t most_tokens;  // all drafters have together until the alarm
};

class RareDrafterTest : public ::testing::TestWithParam<PlantedInRare> {};

// The same samples in one pot show what the pooled evidence alone sees. To it, the bias has a
// twentieth of the size, so that it takes 400 times the tokens, and not 20 times.
TEST_P(RareDrafterTest, IsSeenByItsOwnSamplesLongBeforeThePooledEvidence) {
  constexpr int kRuns = 3;
  constexpr int64_t kLater = 4;  // times the tokens that `monitor` takes
  const PlantedInRare& planted = GetParam();
  std::vector<int64_t> tokens;
  std::vector<int64_t> own_tokens;
  for (int run = 0; run < kRuns; ++run) {
    AuditMonitor monitor;
    AuditMonitor pooled;
    AuditedDecoder honest(Scenario(Mistake::kNone), 2000 + run);
    AuditedDecoder mistaken(Scenario(planted.mistake), 3000 + run);
    std::mt19937_64 random(4000 + run);
    const auto decode = [&] {
      const bool is_rare = random() % 20 == 0;
      const std::span<const AuditSample> samples = (is_rare ? mistaken : honest).Round();
      ASSERT_TRUE(Feed(samples, is_rare ? Drafter::kMedusa : Drafter::kModel, monitor).ok());
      ASSERT_TRUE(Feed(samples, std::nullopt, pooled).ok());
    };
    const auto num_tokens = [&] { return static_cast<int64_t>(monitor.stats().num_samples()); };
    while (!monitor.failed() && num_tokens() <= planted.most_tokens) decode();
    ASSERT_EQ(monitor.stats().drafters_size(), 2);
    EXPECT_FALSE(monitor.stats().drafters(0).biased()) << "run " << run;
    EXPECT_TRUE(monitor.stats().drafters(1).biased()) << "run " << run;
    EXPECT_EQ(monitor.stats().drafters(1).name(), "medusa");
    tokens.push_back(num_tokens());
    own_tokens.push_back(static_cast<int64_t>(monitor.stats().drafters(1).num_samples()));
    while (!pooled.failed() && num_tokens() < kLater * tokens.back()) decode();
    EXPECT_FALSE(pooled.failed()) << "run " << run << ": " << num_tokens();
    EXPECT_FALSE(monitor.stats().drafters(0).biased()) << "run " << run;
  }
  std::sort(tokens.begin(), tokens.end());
  std::sort(own_tokens.begin(), own_tokens.end());
  std::printf("%-20s tokens to the alarm: median %6.0f, of the drafter's own %6.0f; most %6.0f\n",
              planted.name.c_str(), static_cast<double>(tokens[kRuns / 2]),
              static_cast<double>(own_tokens[kRuns / 2]), static_cast<double>(tokens.back()));
}

INSTANTIATE_TEST_SUITE_P(
    All, RareDrafterTest,
    ::testing::Values(PlantedInRare{"Lenience", Mistake::kLenience, 400'000},
                      PlantedInRare{"ResidualIsTarget", Mistake::kResidualIsTarget, 400'000},
                      PlantedInRare{"SharedUniform", Mistake::kSharedUniform, 400'000}),
    [](const auto& test) { return test.param.name; });

Drafter DrafterOf(TreeKind kind) {
  return kind == TreeKind::kFound ? Drafter::kRetrieval : Drafter::kModel;
}

// Decodes requests with trees until the alarm, or until more than `most` tokens. Returns the number
// of tokens.
int64_t TokensToAlarmOfTrees(TreeKind kind, TreeMistake mistake, SamplingParams params,
                             uint64_t first_seed, int64_t most, AuditMonitor& monitor) {
  constexpr size_t kOutputTokens = 48;
  // With few tokens, siblings are often equal, and a sibling is often drawn after a rejection. Two
  // drafters that are one model agree most where they should not.
  const SyntheticModel target(7, 31, 2.0f);
  TreeDecoder decoder(
      {target, {target.Perturbed(32, 2.0f), target.Perturbed(32, 2.0f)}, kind, mistake});
  params.audit = true;
  params.reproducible = kind == TreeKind::kCoupled;
  int64_t num_tokens = 0;
  for (params.seed = first_seed; num_tokens <= most && !monitor.failed(); ++params.seed) {
    decoder.Start(params, kPrompt);
    while (decoder.output().size() < kOutputTokens && !monitor.failed()) {
      EXPECT_TRUE(Feed(decoder.Round().audit, DrafterOf(kind), monitor).ok());
    }
    num_tokens += static_cast<int64_t>(decoder.output().size());
  }
  return num_tokens;
}

TEST(HonestTokensTest, RaiseNoAlarmWithTrees) {
  constexpr int64_t kTokens = 20'000;  // tokens of each combination
  AuditMonitor monitor;
  uint64_t seed = 0;
  for (const ParamSet& set : AllParamSets()) {
    for (const TreeKind kind :
         {TreeKind::kFound, TreeKind::kWithReplacement, TreeKind::kWithoutReplacement,
          TreeKind::kTwoDrafters, TreeKind::kDrawnThenFound}) {
      TokensToAlarmOfTrees(kind, TreeMistake::kNone, set.params, seed += 1'000'000, kTokens,
                           monitor);
      ASSERT_FALSE(monitor.failed()) << set.name << NameOf(kind) << ": " << monitor.TakeAlarm();
    }
  }
  const v1::AuditStats stats = monitor.stats();
  EXPECT_GT(stats.num_samples(), 1'000'000);
  EXPECT_LT(std::abs(stats.uniformity_z()), 5.5);
  EXPECT_LT(std::abs(stats.draft_mode_z()), 5.5);
}

struct PlantedInTrees {
  TreeKind kind;
  TreeMistake mistake;
  int64_t most_tokens;
  int runs = 3;
};

class PlantedTreeMistakeTest : public ::testing::TestWithParam<PlantedInTrees> {};

TEST_P(PlantedTreeMistakeTest, IsSeenWithinTheStatedTokens) {
  const PlantedInTrees& planted = GetParam();
  std::vector<int64_t> tokens;
  for (int run = 0; run < planted.runs; ++run) {
    AuditMonitor monitor;
    tokens.push_back(TokensToAlarmOfTrees(planted.kind, planted.mistake, SamplingParams(),
                                          static_cast<uint64_t>(run) * 10'000'000,
                                          planted.most_tokens, monitor));
    EXPECT_TRUE(monitor.stats().biased()) << "run " << run;
  }
  std::sort(tokens.begin(), tokens.end());
  std::printf("%-18s %-16s tokens to the alarm: median %7.0f, most %7.0f\n",
              NameOf(planted.kind).c_str(), NameOf(planted.mistake).c_str(),
              static_cast<double>(tokens[tokens.size() / 2]), static_cast<double>(tokens.back()));
}

// A judge that reads the row of a sibling audits with this row too. Only the replays of the audit
// see it (docs/audit.md).
INSTANTIATE_TEST_SUITE_P(
    All, PlantedTreeMistakeTest,
    ::testing::Values(
        PlantedInTrees{TreeKind::kWithReplacement, TreeMistake::kSortsSiblings, 40'000},
        PlantedInTrees{TreeKind::kTwoDrafters, TreeMistake::kSharesUniform, 800'000},
        PlantedInTrees{TreeKind::kWithReplacement, TreeMistake::kDraftsByOwnDraw, 60'000},
        PlantedInTrees{TreeKind::kWithoutReplacement, TreeMistake::kForgetsRejections, 8'000'000,
                       1}),
    [](const auto& test) { return NameOf(test.param.kind) + NameOf(test.param.mistake); });

TEST(OwnStepTest, RaisesNoAlarmWithoutAMistake) {
  AuditedDecoder decoder(Scenario(Mistake::kNoneInOwnStep), /*random_seed=*/5);
  AuditMonitor monitor;
  while (monitor.stats().num_samples() < 500'000) {
    ASSERT_TRUE(Feed(decoder.Round(), Drafter::kModel, monitor).ok());
  }
  EXPECT_FALSE(monitor.failed()) << monitor.TakeAlarm();
  // The number of tokens to an alarm depends on the acceptance.
  const double acceptance =
      static_cast<double>(decoder.num_accepted()) / static_cast<double>(decoder.num_tested());
  std::printf("acceptance %.2f\n", acceptance);
  EXPECT_NEAR(acceptance, 0.7, 0.1);
}

}  // namespace
}  // namespace tandem::testing
