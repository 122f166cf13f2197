#include "services/router/audit/audit_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>

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
    EXPECT_TRUE(monitor.OnSamples(One(make_uniform())).ok());
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
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(monitor.OnSamples(One(UniformFrom(random))).ok());
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

TEST(AuditMonitorTest, AnImpossibleTokenIsProof) {
  AuditMonitor monitor;
  ASSERT_TRUE(monitor.OnSamples(One(0.3)).ok());
  EXPECT_FALSE(monitor.failed());
  ASSERT_TRUE(monitor.OnSamples(One(1)).ok());
  EXPECT_TRUE(monitor.stats().biased());
  EXPECT_THAT(monitor.TakeAlarm(), HasSubstr("no probability"));
}

TEST(AuditMonitorTest, ABatchWithASampleOutOfRangeIsRefusedAsAWhole) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  AuditMonitor monitor;
  for (const auto& [uniform, excess] :
       {std::pair(-1e-9, 0.0), std::pair(1.5, 0.0), std::pair(kNaN, 0.0), std::pair(0.5, kNaN),
        std::pair(0.5, 1.01), std::pair(0.5, -1.01)}) {
    Samples samples = One(0.5);
    samples.MergeFrom(One(uniform, excess));
    const absl::Status status = monitor.OnSamples(samples);
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
