#include "services/router/engine/pod_output.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "tests/router/toy_slots.h"

namespace tandem::pod_output_test {
namespace {

using testing::ToySlots;

// The only command, which is a line of the log.
LogLine OnlyLine(const PodOutput& out) {
  EXPECT_EQ(out.commands.size(), 1u);
  if (out.commands.empty()) return {};
  return std::get<LogLine>(out.commands[0]);
}

TEST(PodOutputTest, ALineOfAPodNamesNoRequest) {
  PodOutput out;
  out.Log(LogLine::Level::kInfo, "text of the worker", "what others may see");
  const LogLine line = OnlyLine(out);
  EXPECT_EQ(line.level, LogLine::Level::kInfo);
  EXPECT_EQ(line.text, "text of the worker");
  EXPECT_EQ(line.summary, "what others may see");
  EXPECT_EQ(line.request_id, "");
  EXPECT_FALSE(line.slot.has_value());
  EXPECT_FALSE(line.epoch.has_value());
}

TEST(PodOutputTest, ALineOfASlotNamesItsRequestAndItsEpochAtTheVerifier) {
  ToySlots toy(2);
  toy.Add(5);
  toy.Add(5);
  toy.slots.verifier().BeginLife(1);
  PodOutput out;
  out.LogSlot(toy.slots, LogLine::Level::kWarning, 1, "text", "summary");
  const LogLine line = OnlyLine(out);
  EXPECT_EQ(line.level, LogLine::Level::kWarning);
  EXPECT_EQ(line.text, "text");
  EXPECT_EQ(line.summary, "summary");
  EXPECT_EQ(line.request_id, "2");
  EXPECT_EQ(line.slot, 1u);
  EXPECT_EQ(line.epoch, 2u);
}

TEST(PodOutputTest, ALineAboutADraftersSlotHasTheEpochAtTheDrafter) {
  ToySlots toy(1);
  toy.Add(5);
  toy.slots.peer(kDrafterPeer).BeginLife(0);
  PodOutput out;
  out.LogSlot(toy.slots, LogLine::Level::kDebug, 0, "text", /*summary=*/{}, kDrafterPeer);
  const LogLine line = OnlyLine(out);
  EXPECT_EQ(line.summary, "");
  EXPECT_EQ(line.slot, 0u);
  EXPECT_EQ(line.epoch, 2u);
  EXPECT_EQ(toy.slots.verifier().slot(0).epoch, 1u);
}

TEST(PodOutputTest, ARequestThatEndedIsReportedWithItsStatus) {
  ToySlots toy(1);
  toy.Add(5);
  const Sequence* sequence = &toy.sequence(0);
  PodOutput out;
  out.ReportFinished(toy.slots.Vacate(0), absl::InternalError("why"));
  ASSERT_EQ(out.reports.size(), 1u);
  EXPECT_EQ(out.reports[0].kind, PodReport::Kind::kFinished);
  EXPECT_EQ(out.reports[0].sequence.get(), sequence);
  EXPECT_EQ(out.reports[0].status, absl::InternalError("why"));
  EXPECT_TRUE(out.commands.empty());
  EXPECT_EQ(out.counts.finished, 0u) << "admission counts it";
}

TEST(PodOutputTest, ARequestThatGivesItsSlotUpIsReportedCountedAndLogged) {
  ToySlots toy(2);
  toy.Add(5);
  toy.Add(5);
  toy.slots.verifier().BeginLife(1);
  const Sequence* sequence = &toy.sequence(1);
  PodOutput out;
  out.ReportPreempted(toy.slots.Vacate(1));
  ASSERT_EQ(out.reports.size(), 1u);
  EXPECT_EQ(out.reports[0].kind, PodReport::Kind::kPreempted);
  EXPECT_EQ(out.reports[0].sequence.get(), sequence);
  EXPECT_EQ(out.counts.preemptions, 1u);
  const LogLine line = OnlyLine(out);
  EXPECT_EQ(line.level, LogLine::Level::kDebug);
  EXPECT_EQ(line.text, "preempted: others need its pages");
  EXPECT_EQ(line.request_id, "2");
  EXPECT_EQ(line.slot, 1u);
  EXPECT_EQ(line.epoch, 2u);
}

TEST(PodOutputTest, AReplayThatGivesWayIsReportedButNotCounted) {
  ToySlots toy(1);
  toy.Add(ToySlots::Request(5), /*is_replay=*/true);
  PodOutput out;
  out.ReportPreempted(toy.slots.Vacate(0));
  ASSERT_EQ(out.reports.size(), 1u);
  EXPECT_EQ(out.reports[0].kind, PodReport::Kind::kPreempted);
  EXPECT_EQ(out.counts.preemptions, 0u);
  EXPECT_EQ(OnlyLine(out).text, "replay of the audit: gives its slot up");
}

}  // namespace
}  // namespace tandem::pod_output_test
