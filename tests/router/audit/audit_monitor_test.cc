#include "services/router/audit/audit_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tandem::audit_monitor_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Samples = google::protobuf::RepeatedPtrField<v1::AuditSample>;

Samples One(double uniform, double draft_mode_excess = 0) {
  Samples samples;
  v1::AuditSample& sample = *samples.Add();
  sample.set_uniform(uniform);
  sample.set_draft_mode_excess(draft_mode_excess);
  return samples;
}

double UniformFrom(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// Feeds samples until the alarm. Returns their number, or `most` without an alarm.
template <class MakeUniform>
int SamplesToAlarm(AuditMonitor& monitor, int most, const MakeUniform& make_uniform) {
  for (int i = 0; i < most; ++i) {
    EXPECT_TRUE(monitor.OnSamples(std::nullopt, One(make_uniform())).ok());
    if (monitor.failed()) return i + 1;
  }
  return most;
}

TEST(AuditMonitorTest, HonestSamplesRaiseNoAlarm) {
  AuditMonitor monitor;
  std::mt19937_64 random(1);
  SamplesToAlarm(monitor, 300'000, [&] { return UniformFrom(random); });
  EXPECT_FALSE(monitor.failed());
  EXPECT_EQ(monitor.TakeAlarm(), "");
  const v1::AuditStats stats = monitor.stats();
  EXPECT_EQ(stats.num_samples(), 300'000);
  EXPECT_FALSE(stats.biased());
  EXPECT_LT(std::abs(stats.uniformity_z()), 6);
}

TEST(AuditMonitorTest, ABiasIsReportedOnceAndStays) {
  AuditMonitor monitor;
  std::mt19937_64 random(2);
  // An eighth of the tokens come only from the lower half.
  const auto biased = [&] {
    const double u = UniformFrom(random);
    return UniformFrom(random) < 0.125 ? u / 2 : u;
  };
  EXPECT_LT(SamplesToAlarm(monitor, 20'000, biased), 20'000);
  EXPECT_THAT(monitor.TakeAlarm(), AllOf(HasSubstr("uniformity z "), HasSubstr("draft mode z 0")));
  EXPECT_EQ(monitor.TakeAlarm(), "");
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(monitor.OnSamples(std::nullopt, One(UniformFrom(random))).ok());
  EXPECT_TRUE(monitor.stats().biased());
  EXPECT_EQ(monitor.TakeAlarm(), "");
}

TEST(AuditMonitorTest, ABiasThatBeginsLateIsSeenByTheWindow) {
  AuditMonitor monitor;
  std::mt19937_64 random(3);
  SamplesToAlarm(monitor, 2'000'000, [&] { return UniformFrom(random); });
  ASSERT_FALSE(monitor.failed());
  const auto biased = [&] {
    const double u = UniformFrom(random);
    return UniformFrom(random) < 0.125 ? u / 2 : u;
  };
  // After two million honest samples, the statistic over all samples would need about 60,000
  // samples.
  EXPECT_LT(SamplesToAlarm(monitor, 150'000, biased), 150'000);
}

// Every drafter, and rounds without a draft.
std::vector<std::optional<Drafter>> AllSources() {
  std::vector<std::optional<Drafter>> sources = {std::nullopt};
  for (size_t i = 0; i < kNumDrafters; ++i) sources.emplace_back(static_cast<Drafter>(i));
  return sources;
}

TEST(AuditMonitorTest, HonestSamplesOfAllDraftersRaiseNoAlarmAndCountForTheirDrafter) {
  AuditMonitor monitor;
  std::mt19937_64 random(4);
  const std::vector<std::optional<Drafter>> sources = AllSources();
  for (int i = 0; i < 240'000; ++i) {
    // The most frequent source has about seven times the samples of the rarest.
    const double u = UniformFrom(random);
    const auto source = static_cast<size_t>(u * u * static_cast<double>(sources.size()));
    const bool hit = UniformFrom(random) < 0.25;
    ASSERT_TRUE(
        monitor.OnSamples(sources[source], One(UniformFrom(random), hit ? 0.75 : -0.25)).ok());
  }
  EXPECT_FALSE(monitor.failed()) << monitor.TakeAlarm();
  const v1::AuditStats stats = monitor.stats();
  ASSERT_EQ(stats.drafters_size(), static_cast<int>(kNumDrafters) + 1);
  uint64_t num_samples = 0;
  for (const v1::AuditDrafterStats& drafter : stats.drafters()) {
    num_samples += drafter.num_samples();
    EXPECT_LT(std::abs(drafter.uniformity_z()), 6) << drafter.name();
    EXPECT_LT(std::abs(drafter.draft_mode_z()), 6) << drafter.name();
    EXPECT_FALSE(drafter.biased());
  }
  EXPECT_EQ(num_samples, stats.num_samples());
  EXPECT_EQ(stats.drafters(0).name(), "model");
  EXPECT_EQ(stats.drafters(kNumDrafters).name(), "none");
}

// One token in twenty is of a drafter with a bias. Samples that all go into one pot show what the
// pooled evidence alone would see.
TEST(AuditMonitorTest, ABiasOfARareDrafterIsFoundWithItsOwnSamples) {
  AuditMonitor monitor;
  AuditMonitor pooled;
  std::mt19937_64 random(5);
  const auto feed = [&] {
    const bool is_rare = UniformFrom(random) < 0.05;
    double u = UniformFrom(random);
    if (is_rare && UniformFrom(random) < 0.25) u /= 2;
    ASSERT_TRUE(monitor.OnSamples(is_rare ? Drafter::kEagle : Drafter::kModel, One(u)).ok());
    ASSERT_TRUE(pooled.OnSamples(std::nullopt, One(u)).ok());
  };
  while (!monitor.failed() && monitor.stats().num_samples() < 100'000) feed();
  EXPECT_THAT(monitor.TakeAlarm(), HasSubstr("samples of the drafter eagle the output is not"));
  const v1::AuditStats stats = monitor.stats();
  ASSERT_EQ(stats.drafters_size(), 2);
  EXPECT_FALSE(stats.drafters(0).biased()) << stats.drafters(0).name();
  EXPECT_TRUE(stats.drafters(1).biased()) << stats.drafters(1).name();
  std::printf("the drafter's own: %d samples, %d of all\n",
              static_cast<int>(stats.drafters(1).num_samples()),
              static_cast<int>(stats.num_samples()));
  while (!pooled.failed() && pooled.stats().num_samples() < 5 * stats.num_samples()) feed();
  EXPECT_FALSE(pooled.failed());
  EXPECT_EQ(monitor.TakeAlarm(), "") << "the other drafter is honest, and one alarm is enough";
}

TEST(AuditMonitorTest, ABiasOfAllDraftersIsFoundWithTheSamplesOfAll) {
  AuditMonitor monitor;
  std::mt19937_64 random(6);
  const std::vector<std::optional<Drafter>> sources = AllSources();
  size_t i = 0;
  const auto feed = [&] {
    double u = UniformFrom(random);
    if (UniformFrom(random) < 0.125) u /= 2;
    ASSERT_TRUE(monitor.OnSamples(sources[i++ % sources.size()], One(u)).ok());
  };
  while (!monitor.failed() && i < 20'000) feed();
  EXPECT_THAT(monitor.TakeAlarm(), AllOf(HasSubstr("samples of all drafters together"),
                                         HasSubstr("the strongest evidence is that of ")));
  const v1::AuditStats stats = monitor.stats();
  for (const v1::AuditDrafterStats& drafter : stats.drafters()) {
    EXPECT_FALSE(drafter.biased()) << drafter.name();
  }
  std::string alarms;
  while (i < 120'000) {
    feed();
    alarms += monitor.TakeAlarm() + "\n";
  }
  EXPECT_THAT(alarms, HasSubstr("of the drafter model the output"));
  EXPECT_THAT(alarms, HasSubstr("of rounds without a draft (none) the output"));
  EXPECT_THAT(alarms, ::testing::Not(HasSubstr("together"))) << "said before";
}

// Feeds samples of the lower half to the sources in turn, until the alarm. Returns the evidence of
// these samples in a statistic of the test, before the last sample and with it.
std::pair<double, double> EvidenceAtAlarm(const std::vector<std::optional<Drafter>>& sources,
                                          AuditMonitor& monitor) {
  UniformityStatistic statistic;
  double before = 0;
  for (size_t i = 0; i < 1'000 && !monitor.failed(); ++i) {
    before = statistic.log_evidence();
    const double u = (static_cast<double>(i % 8) + 0.5) / 16;
    statistic.Add(u);
    EXPECT_TRUE(monitor.OnSamples(sources[i % sources.size()], One(u)).ok());
  }
  EXPECT_TRUE(monitor.failed());
  return {before, statistic.log_evidence()};
}

TEST(AuditMonitorTest, TheLimitsOfAllPotsAddUpToTheBudget) {
  // A pot has two statistics over all samples, and two over windows, which get as much.
  constexpr double kParts = 4;
  constexpr double kBudget = AuditMonitor::kFalseAlarmProbability;
  const double limit = std::log(kParts * AuditMonitor::kNumPots / kBudget);
  double sum = 0;
  const auto add = [&](const std::vector<std::optional<Drafter>>& sources,
                       const std::string& whose) {
    AuditMonitor monitor;
    const auto [before, at_alarm] = EvidenceAtAlarm(sources, monitor);
    EXPECT_LT(before, limit) << whose;
    EXPECT_GE(at_alarm, limit) << whose;
    EXPECT_LT(at_alarm - before, 0.7) << "a step shows a part of the budget that is twice as large";
    EXPECT_THAT(monitor.TakeAlarm(), HasSubstr("samples of " + whose + " the output"));
    // Evidence of e reaches the limit with a probability of at most exp(-e).
    sum += kParts * std::exp(-at_alarm);
  };
  for (const std::optional<Drafter> source : AllSources()) {
    add({source}, source.has_value() ? "the drafter " + DrafterName(*source)
                                     : "rounds without a draft (none)");
  }
  add(AllSources(), "all drafters together");
  EXPECT_EQ(AllSources().size() + 1, AuditMonitor::kNumPots) << "every pot has a limit";
  EXPECT_LE(sum, kBudget);
  EXPECT_GT(sum, kBudget / 2) << "nothing is given away";
}

TEST(AuditMonitorTest, AnImpossibleTokenIsProof) {
  AuditMonitor monitor;
  ASSERT_TRUE(monitor.OnSamples(std::nullopt, One(0.3)).ok());
  EXPECT_FALSE(monitor.failed());
  ASSERT_TRUE(monitor.OnSamples(Drafter::kEagle, One(1)).ok());
  EXPECT_TRUE(monitor.stats().biased());
  EXPECT_THAT(monitor.TakeAlarm(), AllOf(HasSubstr("after 1 samples of the drafter eagle "),
                                         HasSubstr("no probability")));
}

TEST(AuditMonitorTest, ABatchWithASampleOutOfRangeIsRefusedAsAWhole) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  AuditMonitor monitor;
  for (const auto& [uniform, excess] :
       {std::pair(-1e-9, 0.0), std::pair(1.5, 0.0), std::pair(kNaN, 0.0), std::pair(0.5, kNaN),
        std::pair(0.5, 1.01), std::pair(0.5, -1.01)}) {
    Samples samples = One(0.5);
    samples.MergeFrom(One(uniform, excess));
    const absl::Status status = monitor.OnSamples(Drafter::kModel, samples);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("audit."));
  }
  EXPECT_EQ(monitor.stats().num_samples(), 0);
}

TEST(AuditMonitorTest, AMismatchNamesTheFirstPositionAndBothTokens) {
  AuditMonitor monitor;
  monitor.OnReplay("alpha", std::nullopt);
  EXPECT_FALSE(monitor.failed());
  EXPECT_EQ(monitor.TakeAlarm(), "");
  monitor.OnReplay("beta",
                   ReplayMismatch{.position = 17, .emitted_token_id = 42, .replayed_token_id = 57});
  EXPECT_TRUE(monitor.failed());
  EXPECT_EQ(monitor.TakeAlarm(),
            "audit: request beta decoded again without drafting differs first at output token 17: "
            "emitted 42, replayed 57");
  EXPECT_EQ(monitor.stats().num_replayed(), 2);
  EXPECT_EQ(monitor.stats().num_mismatches(), 1);
  EXPECT_FALSE(monitor.stats().biased());
}

}  // namespace
}  // namespace tandem::audit_monitor_test
