#include "services/router/fleet/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "services/router/fleet/fleet_drafters.h"
#include "services/router/fleet/fleet_invariants.h"
#include "tests/router/fleet_driver.h"

namespace tandem {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::FleetDriver;
using testing::ToyModel;
using testing::ToyPod;

std::vector<int32_t> Prompt(int number, int length = 9) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back((1 + number * 31 + i * 7) % 60);
  return prompt;
}

EngineOptions Options() {
  EngineOptions options;
  options.draft_length = 4;
  options.max_lost_rounds = 1000;
  return options;
}

// What an undisturbed engine of one pod says.
std::vector<int32_t> Alone(int number, int max_tokens) {
  EngineDriver driver(Options());
  driver.Start();
  return driver.Generate(driver.Request(Prompt(number), max_tokens)).ids;
}

std::vector<size_t> Running(const FleetDriver& driver) {
  std::vector<size_t> running;
  for (size_t pod = 0; pod < driver.fleet.num_pods(); ++pod) {
    running.push_back(driver.fleet.engine(pod).num_running());
  }
  return running;
}

TEST(FleetTest, OnePodIsItsEngine) {
  FleetDriver driver(Options());
  driver.List({"a"});
  EXPECT_TRUE(driver.fleet.ready());
  EXPECT_TRUE(DraftersSettled(driver.fleet));
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(1), 40)).ids, Alone(1, 40));
  EXPECT_TRUE(std::all_of(driver.log.begin(), driver.log.end(),
                          [](const LogLine& line) { return line.pod.empty(); }));
}

TEST(FleetTest, WithoutPodsNothingIsServed) {
  FleetDriver driver(Options());
  EXPECT_FALSE(driver.fleet.ready());
  EXPECT_EQ(driver.fleet.promised(), nullptr);
  const CallId call = driver.Send(driver.Request(Prompt(1), 4));
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(std::isinf(driver.fleet.NextDeadline()));
}

TEST(FleetTest, RequestsSpreadOverThePods) {
  FleetDriver driver(Options());
  driver.List({"a", "b", "c"});
  for (int i = 0; i < 6; ++i) driver.Send(driver.Request(Prompt(i), 50));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{2, 2, 2}));
  EXPECT_TRUE(driver.Run());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(driver.calls[static_cast<CallId>(i + 1)].ids, Alone(i, 50));
  }
}

TEST(FleetTest, APodThatWasToldToStopKeepsItsStreamsAndGetsNoNewOnes) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  for (int i = 0; i < 2; ++i) driver.Send(driver.Request(Prompt(i), 50));
  ASSERT_EQ(Running(driver), (std::vector<size_t>{1, 1}));
  driver.ToldToStop("a", true);
  EXPECT_TRUE(driver.Logged("verifier: drains"));
  for (int i = 2; i < 6; ++i) driver.Send(driver.Request(Prompt(i), 50));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 5}));
  EXPECT_TRUE(driver.Run());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(driver.calls[static_cast<CallId>(i + 1)].ids, Alone(i, 50));
  }
  EXPECT_FALSE(driver.Logged("lost"));
  driver.WaitFor(1);
  EXPECT_EQ(driver.NumOpen("a"), 0u);
}

TEST(FleetTest, WhereAllWereToldToStopTheyServe) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  driver.ToldToStop("a", true);
  driver.ToldToStop("b", true);
  for (int i = 0; i < 4; ++i) driver.Send(driver.Request(Prompt(i), 50));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{2, 2}));
  // One that comes back is new, and takes all that follow.
  driver.Kill("b");
  driver.Pod("b").alive = true;
  driver.Pod("b").pong.set_draining(false);
  driver.WaitFor(1);
  ASSERT_TRUE(driver.fleet.engine(1).workers().ready(kVerifierPeer));
  const size_t before = driver.fleet.engine(0).num_running();
  for (int i = 4; i < 6; ++i) driver.Send(driver.Request(Prompt(i), 50));
  EXPECT_LE(driver.fleet.engine(0).num_running(), before);
  EXPECT_TRUE(driver.Run());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(driver.calls[static_cast<CallId>(i + 1)].ids, Alone(i, 50));
  }
}

TEST(FleetTest, WhatFindsNoRoomWaitsForWhoeverHasItFirst) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  options.max_queue = 2;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 400));
  const CallId second = driver.Send(driver.Request(Prompt(1), 20));
  const CallId third = driver.Send(driver.Request(Prompt(2), 20));
  const CallId fourth = driver.Send(driver.Request(Prompt(3), 20));
  EXPECT_EQ(driver.fleet.num_waiting(), 2);
  EXPECT_EQ(driver.fleet.State().gauges.queued, 2);
  ASSERT_TRUE(driver.fleet.RefusesAll(driver.now).has_value());
  const CallId fifth = driver.Send(driver.Request(Prompt(4), 20));
  EXPECT_EQ(driver.calls[fifth].status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(driver.calls[fifth].retry_milliseconds, 0);
  // All three short ones go through the pod of the second, one after the other.
  std::vector<CallId> order;
  EXPECT_TRUE(driver.Run([&](int) {
    for (CallId call : {first, second, third, fourth}) {
      if (driver.calls[call].status.has_value() &&
          std::find(order.begin(), order.end(), call) == order.end()) {
        order.push_back(call);
      }
    }
  }));
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 400));
  EXPECT_EQ(order, (std::vector<CallId>{second, third, fourth, first}));
}

TEST(FleetTest, AQueueOfNoneRefusesWhatFindsNoRoom) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  options.max_queue = 0;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 20));
  const CallId second = driver.Send(driver.Request(Prompt(1), 20));
  const CallId third = driver.Send(driver.Request(Prompt(2), 20));
  EXPECT_EQ(driver.calls[third].status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(driver.Run());
  EXPECT_TRUE(driver.calls[first].status->ok());
  EXPECT_TRUE(driver.calls[second].status->ok());
  EXPECT_EQ(driver.fleet.State().counts.finished, 2) << "one that is refused is not finished";
}

TEST(FleetTest, StreamsOfALostPodGoOnElsewhere) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  for (int i = 0; i < 6; ++i) driver.Send(driver.Request(Prompt(i), 80));
  for (int i = 0; i < 12; ++i) driver.Step();
  size_t begun = 0;
  for (const auto& [call, result] : driver.calls) begun += result.ids.empty() ? 0 : 1;
  EXPECT_EQ(begun, 6);
  driver.Kill("a");
  EXPECT_TRUE(driver.Logged("3 requests move to others"));
  // What was in the lost batch waits until the other pod is heard.
  while (Running(driver) != std::vector<size_t>{0, 6}) ASSERT_TRUE(driver.Step());
  EXPECT_TRUE(driver.Run());
  for (int i = 0; i < 6; ++i) {
    const CallResult& result = driver.calls[static_cast<CallId>(i + 1)];
    EXPECT_TRUE(result.status->ok());
    EXPECT_EQ(result.ids, Alone(i, 80));
    EXPECT_EQ(result.completion->usage().completion_tokens(), 80);
  }
  EXPECT_TRUE(driver.fleet.ready());
}

TEST(FleetTest, StreamsOfALostPodGoBeforeNewRequests) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 60));
  driver.Send(driver.Request(Prompt(1), 60));
  for (int i = 0; i < 8; ++i) driver.Step();
  const CallId third = driver.Send(driver.Request(Prompt(2), 60));
  driver.Kill("a");
  EXPECT_EQ(driver.fleet.num_waiting(), 2);
  bool first_ended = false;
  EXPECT_TRUE(driver.Run([&](int) {
    first_ended = driver.calls[first].status.has_value();
    EXPECT_TRUE(first_ended || driver.calls[third].ids.empty());
  }));
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 60));
  EXPECT_EQ(driver.calls[third].ids, Alone(2, 60));
}

TEST(FleetTest, AStreamWaitsForItsPodWhereNumericsDiffer) {
  FleetDriver driver(Options());
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a", "b"});
  EXPECT_TRUE(driver.Logged("other numerics"));
  const CallId first = driver.Send(driver.Request(Prompt(0), 80));
  const CallId second = driver.Send(driver.Request(Prompt(1), 80));
  while (driver.calls[first].ids.empty() || driver.calls[second].ids.empty()) driver.Step();
  driver.Kill("a");
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 1}));
  driver.WaitFor(3);
  EXPECT_TRUE(driver.calls[second].status.has_value());
  EXPECT_FALSE(driver.calls[first].status.has_value());
  // Who comes now is served.
  const CallId third = driver.Send(driver.Request(Prompt(2), 10));
  driver.WaitFor(1);
  EXPECT_EQ(driver.calls[third].ids, Alone(2, 10));
  EXPECT_FALSE(driver.calls[first].status.has_value());
  driver.Pod("a").alive = true;
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 80));
}

TEST(FleetTest, AStreamGoesByTheNumericsThatItsTokensAreOf) {
  FleetDriver driver(Options());
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a", "b"});
  const CallId call = driver.Send(driver.Request(Prompt(0), 80));
  while (driver.calls[call].ids.empty()) ASSERT_TRUE(driver.Step());
  driver.Kill("a");
  // Its pod comes back as what the other one is, and dies before it made a token.
  driver.Pod("a").verifier.options.numerics_id = "other";
  driver.Pod("a").alive = true;
  while (!driver.fleet.engine(0).workers().ready(kVerifierPeer)) {
    if (!driver.Step()) driver.Wait();
  }
  driver.Kill("a");
  driver.WaitFor(1);
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 0}));
  driver.Pod("a").verifier.options.numerics_id = "toy";
  driver.Pod("a").alive = true;
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, Alone(0, 80));
}

TEST(FleetTest, AStreamThatWaitsForItsKindOfPodKeepsNobodyFromOthers) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a", "b", "c"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 60));
  const CallId second = driver.Send(driver.Request(Prompt(1), 3));
  const CallId third = driver.Send(driver.Request(Prompt(2), 400));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 1, 1}));
  while (driver.calls[first].ids.empty() || !driver.calls[second].status.has_value()) {
    ASSERT_TRUE(driver.Step());
  }
  driver.Kill("a");
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 0, 1}));
  EXPECT_EQ(driver.fleet.num_waiting(), 1);
  const CallId fourth = driver.Send(driver.Request(Prompt(3), 10));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 1, 1}));
  const CallId fifth = driver.Send(driver.Request(Prompt(4), 10));  // behind both
  EXPECT_EQ(driver.fleet.num_waiting(), 2);
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 60));
  EXPECT_EQ(driver.calls[third].ids, Alone(2, 400));
  EXPECT_EQ(driver.calls[fourth].ids, Alone(3, 10));
  EXPECT_EQ(driver.calls[fifth].ids, Alone(4, 10));
}

TEST(FleetTest, AStreamThatNoPodCanGoOnWithEndsInTime) {
  EngineOptions options = Options();
  options.verifier_timeout_seconds = 2;
  FleetDriver driver(options);
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a", "b"});
  const CallId call = driver.Send(driver.Request(Prompt(0), 80));
  const CallId second = driver.Send(driver.Request(Prompt(1), 80));
  while (driver.calls[call].ids.empty() || driver.calls[second].ids.empty()) driver.Step();
  driver.Kill("a");
  const double killed_at = driver.now;
  while (!driver.calls[call].status.has_value()) driver.WaitFor(0.1);
  EXPECT_GE(driver.now - killed_at, 2);
  EXPECT_LT(driver.now - killed_at, 3);
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.calls[call].emitted_tokens, static_cast<int>(driver.calls[call].ids.size()));
  EXPECT_EQ(driver.calls[second].ids, Alone(1, 80));
}

TEST(FleetTest, WithoutAnyVerifierRequestsWaitAndThenEnd) {
  EngineOptions options = Options();
  options.verifier_timeout_seconds = 2;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  driver.Kill("a");
  driver.Kill("b");
  EXPECT_FALSE(driver.fleet.ready());
  const CallId waits = driver.Send(driver.Request(Prompt(0), 10));
  EXPECT_FALSE(driver.calls[waits].status.has_value());
  driver.WaitFor(1);
  driver.Pod("b").alive = true;
  driver.WaitFor(1.5);
  EXPECT_EQ(driver.calls[waits].ids, Alone(0, 10));
  driver.Kill("b");
  const CallId ends = driver.Send(driver.Request(Prompt(1), 10));
  driver.WaitFor(3);
  EXPECT_EQ(driver.calls[ends].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.fleet.RefusesAll(driver.now)->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.fleet.num_waiting(), 0);
  EXPECT_GT(driver.fleet.NextDeadline(), driver.now);
}

TEST(FleetTest, TheTimeWithoutVerifiersBeginsWhenTheLastOneIsLetGo) {
  EngineOptions options = Options();
  options.verifier_timeout_seconds = 2;
  FleetDriver driver(options);
  driver.Pod("b").alive = driver.Pod("c").alive = false;
  driver.List({"a", "b", "c"});
  driver.WaitFor(5);
  EXPECT_TRUE(driver.fleet.ready());
  driver.List({"b", "c"});
  EXPECT_FALSE(driver.fleet.ready());
  EXPECT_FALSE(driver.fleet.RefusesAll(driver.now).has_value());
  driver.WaitFor(3);
  EXPECT_TRUE(driver.fleet.RefusesAll(driver.now).has_value());
}

TEST(FleetTest, APodOfAnotherModelIsRefusedAndTheOthersGoOn) {
  FleetDriver driver(Options());
  driver.Pod("b").verifier.name = "another";
  driver.Pod("c").verifier.options.max_context_tokens = 100;
  driver.Pod("d").verifier.options.fingerprint = "no such tokenizer";
  driver.Pod("e").verifier.options.model_fingerprint = "of another training";
  driver.List({"a", "b", "c", "d", "e"});
  driver.WaitFor(12);  // they are asked again
  EXPECT_FALSE(driver.gave_up.has_value());
  const auto complaints = [&](const std::string& pod) {
    return std::count_if(driver.log.begin(), driver.log.end(), [&](const LogLine& line) {
      return line.pod == pod && line.level == LogLine::Level::kError;
    });
  };
  EXPECT_EQ(complaints("b"), 1);
  EXPECT_EQ(complaints("c"), 1);
  EXPECT_EQ(complaints("d"), 1);
  EXPECT_EQ(complaints("e"), 1);
  EXPECT_TRUE(driver.Logged("all pods of a router must serve one model"));
  EXPECT_TRUE(driver.Logged("give each version of a model a name"));
  EXPECT_EQ(driver.fleet.State().num_pods_ready, 1);
  EXPECT_EQ(driver.fleet.State().num_pods_lost, 4);
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(1), 20)).ids, Alone(1, 20));
}

TEST(FleetTest, GivesUpWhenNoPodFits) {
  FleetDriver driver(Options());
  for (const char* name : {"a", "b"}) driver.Pod(name).verifier.options.fingerprint = "no such";
  driver.List({"a", "b"});
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(driver.gave_up->code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FleetTest, GivesUpWhenNoPodFitsAnyMore) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(1), 20)).ids, Alone(1, 20));
  const auto comes_back_as_another = [&](const std::string& name) {
    driver.Kill(name);
    driver.Pod(name).verifier.name = "another";
    driver.Pod(name).alive = true;
    driver.WaitFor(3);
  };
  comes_back_as_another("a");
  EXPECT_EQ(driver.fleet.State().num_pods_ready, 1);
  EXPECT_FALSE(driver.gave_up.has_value());
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(2), 20)).ids, Alone(2, 20));
  comes_back_as_another("b");
  EXPECT_FALSE(driver.fleet.ready());
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(driver.gave_up->code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FleetTest, GivesUpOnceNothingWaitsForAVerifierThatCameBackAsAnother) {
  FleetDriver driver(Options());
  driver.List({"a"});
  const CallId call = driver.Send(driver.Request(Prompt(1), 200));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(driver.Step());
  driver.Kill("a");
  driver.Pod("a").alive = true;
  driver.Pod("a").verifier.options.model_fingerprint = "of another training";
  driver.WaitFor(12);  // it is asked again and again
  EXPECT_FALSE(driver.gave_up.has_value()) << "the stream may still go on";
  EXPECT_FALSE(driver.calls[call].status.has_value());
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_NE(driver.gave_up->message().find("no worker pod is the one that was served"),
            std::string::npos);
}

TEST(FleetTest, WeightsAreThoseOfTheFirstPodThatSays) {
  FleetDriver driver(Options());
  driver.Pod("a").verifier.options.model_fingerprint = "";  // a build that does not say
  driver.Pod("b").verifier.options.model_fingerprint = "weights";
  driver.Pod("c").verifier.options.model_fingerprint = "of another training";
  driver.List({"a"});
  driver.List({"a", "b"});
  driver.List({"a", "b", "c"});
  EXPECT_EQ(driver.fleet.State().num_pods_ready, 2);
  EXPECT_TRUE(driver.Logged("give each version of a model a name"));
  // And it is held to them when it comes back as a build that does.
  driver.Kill("a");
  driver.Pod("a").alive = true;
  driver.Pod("a").verifier.options.model_fingerprint = "of another training";
  driver.WaitFor(12);
  EXPECT_EQ(driver.fleet.State().num_pods_ready, 1);
}

TEST(FleetTest, GivesUpWhenThePodsThatReplaceAllDoNotFit) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  driver.Pod("c").verifier.name = driver.Pod("d").verifier.name = "another";
  driver.List({"c", "d"});
  EXPECT_EQ(driver.fleet.num_pods(), 2);
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(driver.gave_up->code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FleetTest, APodWithoutTheDrafterThatIsRequiredServesNobody) {
  EngineOptions options = Options();
  options.workers.drafter_required = true;
  FleetDriver driver(options);
  driver.Pod("a").drafter.options.fingerprint = "other";
  driver.List({"a", "b"});
  EXPECT_FALSE(driver.gave_up.has_value());
  EXPECT_TRUE(driver.fleet.ready());
  for (int i = 0; i < 2; ++i) driver.Send(driver.Request(Prompt(i), 20));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 2}));
  EXPECT_TRUE(driver.Run());
  driver.Pod("b").drafter.options.fingerprint = "other";
  driver.Kill("b");
  EXPECT_FALSE(driver.fleet.ready()) << "a does not count";
  EXPECT_FALSE(driver.gave_up.has_value());
  driver.Pod("b").alive = true;
  driver.WaitFor(3);
  EXPECT_FALSE(driver.fleet.ready());
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(driver.gave_up->code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FleetTest, APodThatLeavesTheListFinishesWhatItHas) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 60));
  driver.Send(driver.Request(Prompt(1), 60));
  driver.Step();
  driver.List({"b"});  // runs until nothing is under way
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 60));
  EXPECT_EQ(driver.fleet.num_pods(), 1);
  EXPECT_TRUE(driver.Logged("drained and let go"));
  EXPECT_EQ(driver.Pod("a").sessions[Worker::kVerifier], 0);
  EXPECT_EQ(driver.Pod("a").sessions[Worker::kDrafter], 0);
  EXPECT_EQ(driver.fleet.State().counts.finished, 2);
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(2), 20)).ids, Alone(2, 20));
  // What it once sent is nothing to the fleet.
  v1::VerifierReply late;
  driver.fleet.OnVerifierReply(1, late, driver.now);
}

TEST(FleetTest, APodThatLeavesGetsNothingNew) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  driver.Send(driver.Request(Prompt(0), 60));
  driver.Send(driver.Request(Prompt(1), 60));
  driver.fleet.SetPods({FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  for (int i = 2; i < 6; ++i) driver.Send(driver.Request(Prompt(i), 60));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 5}));
  // It comes back before it was drained.
  driver.fleet.SetPods({FleetDriver::Spec("a"), FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  driver.Send(driver.Request(Prompt(6), 60));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{2, 5}));
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.fleet.num_pods(), 2);
}

TEST(FleetTest, APodThatLeavesAndDiesHandsItsStreamsOver) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 60));
  driver.Send(driver.Request(Prompt(1), 60));
  for (int i = 0; i < 6; ++i) driver.Step();
  driver.fleet.SetPods({FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  driver.Kill("a");
  EXPECT_EQ(driver.fleet.num_pods(), 1);
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 60));
}

TEST(FleetTest, ANewPodTakesWhatWaits) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.List({"a"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 300));
  const CallId second = driver.Send(driver.Request(Prompt(1), 20));
  EXPECT_EQ(driver.fleet.num_waiting(), 1);
  driver.Pod("b");
  driver.fleet.SetPods({FleetDriver::Spec("a"), FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  while (!driver.calls[second].status.has_value()) ASSERT_TRUE(driver.Step());
  EXPECT_FALSE(driver.calls[first].status.has_value());
  EXPECT_EQ(driver.calls[second].ids, Alone(1, 20));
  EXPECT_TRUE(driver.Run());
}

TEST(FleetTest, AnIdIsTakenWhereverItsRequestIs) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  const auto send = [&](const std::string& id) {
    GenerationRequest request = driver.Request(Prompt(0), 30);
    request.request_id = id;
    return driver.Send(std::move(request));
  };
  send("x");
  send("y");
  send("z");  // waits
  for (const std::string id : {"x", "y", "z"}) {
    EXPECT_EQ(driver.calls[send(id)].status->code(), absl::StatusCode::kAlreadyExists) << id;
  }
  EXPECT_TRUE(driver.Run());
  const CallId again = send("z");
  EXPECT_TRUE(driver.Run());
  EXPECT_TRUE(driver.calls[again].status->ok());
}

TEST(FleetTest, ARequestThatKillsVerifiersKillsNoThird) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  FleetDriver driver(options);
  driver.List({"a", "b", "c"});
  const std::vector<std::string> names = {"a", "b", "c"};
  // The pod that has it; after a loss that is the first to be heard again.
  const auto its_pod = [&] {
    for (int i = 0; i < 100; ++i) {
      const std::vector<size_t> running = Running(driver);
      const auto pod = std::find(running.begin(), running.end(), size_t{1});
      if (pod != running.end()) return names[static_cast<size_t>(pod - running.begin())];
      driver.Wait();
    }
    return std::string();
  };
  const CallId poison = driver.Send(driver.Request(Prompt(7), 30));
  ASSERT_EQ(its_pod(), "a");
  driver.Kill("a");
  EXPECT_FALSE(driver.calls[poison].status.has_value());
  const std::string second = its_pod();
  ASSERT_NE(second, "");
  driver.Kill(second);
  ASSERT_TRUE(driver.calls[poison].status.has_value());
  EXPECT_EQ(driver.calls[poison].status->code(), absl::StatusCode::kFailedPrecondition);
  // No pod takes the prompt again, whichever it would go to.
  driver.Pod("a").alive = driver.Pod(second).alive = true;
  driver.WaitFor(3);
  for (int i = 0; i < 3; ++i) {
    const CallResult again = driver.Generate(driver.Request(Prompt(7), 30));
    EXPECT_EQ(again.status->code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(FleetTest, PodsThatDieTogetherDoNotCountTwiceAgainstARequest) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  FleetDriver driver(options);
  driver.List({"a", "b", "c"});
  const CallId call = driver.Send(driver.Request(Prompt(0), 40));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 0, 0}));
  driver.Silence("b");
  driver.Kill("a");
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 0, 0}));
  EXPECT_EQ(driver.fleet.num_waiting(), 1);
  // One that nothing was lost with need not wait.
  const CallId other = driver.Send(driver.Request(Prompt(1), 40));
  EXPECT_EQ(driver.fleet.num_waiting(), 1);
  driver.Kill("b");
  EXPECT_FALSE(driver.calls[call].status.has_value());
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, Alone(0, 40));
  EXPECT_EQ(driver.calls[other].ids, Alone(1, 40));
}

TEST(FleetTest, CopiesOfAPoisonPromptLearnOfADeathAtAnotherPod) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  FleetDriver driver(options);
  driver.List({"a", "b", "c"});
  const CallId first = driver.Send(driver.Request(Prompt(7), 30));
  ASSERT_EQ(Running(driver), (std::vector<size_t>{1, 0, 0}));
  driver.Kill("a");
  for (int i = 0; i < 100 && driver.fleet.num_waiting() > 0; ++i) driver.Wait();
  const std::vector<size_t> before = Running(driver);
  ASSERT_EQ(before[1] + before[2], 1u);
  for (int i = 0; i < 5; ++i) driver.Wait();  // until the third pod was heard since
  const CallId second = driver.Send(driver.Request(Prompt(7), 30));
  for (int i = 0; i < 100 && driver.fleet.num_waiting() > 0; ++i) driver.Wait();
  ASSERT_EQ(Running(driver), (std::vector<size_t>{0, 1, 1}));
  // The death of the copy is the second of the prompt, whichever request it was.
  driver.Kill(before[1] == 0 ? "b" : "c");
  for (const CallId call : {first, second}) {
    ASSERT_TRUE(driver.calls[call].status.has_value()) << call;
    EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kFailedPrecondition) << call;
  }
}

// Both pods were lost with a copy of the prompt in their batches: one outage, and no poison.
TEST(FleetTest, PodsThatDieTogetherCountOnceAgainstCopies) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(7), 30));
  const CallId second = driver.Send(driver.Request(Prompt(7), 30));
  ASSERT_EQ(Running(driver), (std::vector<size_t>{1, 1}));
  driver.Kill("a");
  driver.Kill("b");
  driver.Pod("a").alive = driver.Pod("b").alive = true;
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(7, 30));
  EXPECT_EQ(driver.calls[second].ids, Alone(7, 30));
}

TEST(FleetDeathTest, ALostRequestAndALeftIdEndTheProcess) {
  FleetDriver driver(Options());
  driver.List({"a"});
  driver.Send(driver.Request(Prompt(7), 30));
  AssertEachRequestHasItsId(driver.fleet, 1);
  for (const size_t num_ids : {0, 2}) {
    EXPECT_DEATH(AssertEachRequestHasItsId(driver.fleet, num_ids),
                 "an invariant of the fleet does not hold: 1 requests wait or run");
  }
}

TEST(FleetTest, CancelsWhatRunsAndWhatWaits) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 100));
  const CallId second = driver.Send(driver.Request(Prompt(1), 100));
  const CallId third = driver.Send(driver.Request(Prompt(2), 100));
  const CallId fourth = driver.Send(driver.Request(Prompt(3), 20));
  driver.Cancel(third);
  EXPECT_EQ(driver.fleet.num_waiting(), 1);
  driver.Cancel(second);  // the fourth takes its place
  EXPECT_EQ(driver.fleet.num_waiting(), 0);
  driver.Cancel(12345);
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 100));
  EXPECT_EQ(driver.calls[fourth].ids, Alone(3, 20));
  EXPECT_TRUE(driver.calls[third].ids.empty());
}

TEST(FleetTest, OtherRoutersLoadCounts) {
  FleetDriver driver(Options());
  driver.List({"a", "b"});
  // Pod a says that it has seven of eight slots open, and this router has none.
  driver.Pod("a").pong.set_num_open_slots(7);
  driver.WaitFor(1);
  for (int i = 0; i < 4; ++i) driver.Send(driver.Request(Prompt(i), 30));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 4}));
  EXPECT_TRUE(driver.Run());
}

TEST(FleetTest, OtherRoutersLoadCountsWithEachReply) {
  FleetDriver driver(Options());
  driver.Pod("a").verifier.foreign_slots = 6;  // the pod has eight
  driver.List({"a", "b"});
  // No heartbeat has said so: the first goes there.
  driver.Send(driver.Request(Prompt(0), 200));
  ASSERT_EQ(Running(driver), (std::vector<size_t>{1, 0}));
  while (driver.Pod("a").verifier.num_verifies == 0) ASSERT_TRUE(driver.Step());
  ASSERT_TRUE(driver.Step());
  for (int i = 1; i < 5; ++i) driver.Send(driver.Request(Prompt(i), 30));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 4}));
  // And when the others have gone, this pod is the emptier one.
  driver.Pod("a").verifier.foreign_slots = 0;
  const int seen = driver.Pod("a").verifier.num_verifies;
  while (driver.Pod("a").verifier.num_verifies < seen + 2) ASSERT_TRUE(driver.Step());
  ASSERT_EQ(Running(driver), (std::vector<size_t>{1, 4}));
  for (int i = 5; i < 8; ++i) driver.Send(driver.Request(Prompt(i), 30));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{4, 4}));
  EXPECT_TRUE(driver.Run());
}

TEST(FleetTest, WhatIsRefusedDoesNotCountAsThisRoutersOwn) {
  FleetDriver driver(Options());
  for (const char* name : {"a", "b"}) driver.Pod(name).verifier.options.num_pages = 3000;
  driver.Pod("a").verifier.foreign_slots = 8;  // all eight, and nobody has said so yet
  driver.List({"a", "b"});
  for (int i = 0; i < 7; ++i) driver.Send(driver.Request(Prompt(i), 900));
  ASSERT_EQ(Running(driver), (std::vector<size_t>{4, 3}));
  while (driver.Pod("a").verifier.num_refused_opens < 4) ASSERT_TRUE(driver.Step());
  driver.WaitFor(0.1);
  ASSERT_TRUE(driver.Wait());  // it is asked again, and says nothing of slots
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 7}));
  // The other pod has one slot left, this one none.
  driver.Send(driver.Request(Prompt(7), 30));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{0, 8}));
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.Pod("a").verifier.num_refused_opens, 4);
}

TEST(FleetTest, WhatOnePodHasNoPagesForGoesToAnother) {
  FleetDriver driver(Options());
  for (const char* name : {"a", "b"}) {
    driver.Pod(name).verifier.options.num_pages = 30;  // pages of 4 rows
    driver.Pod(name).drafter.options.num_pages = 30;
  }
  driver.List({"a", "b"});
  // Each grows to 25 pages: two of them do not fit into one pod.
  std::vector<CallId> calls;
  for (int i = 0; i < 6; ++i) calls.push_back(driver.Send(driver.Request(Prompt(i), 90)));
  EXPECT_TRUE(driver.Run());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(driver.calls[calls[i]].ids, Alone(static_cast<int>(i), 90));
  }
  EXPECT_GT(driver.fleet.State().counts.preemptions, 0);
  // One that fits nowhere is refused at once.
  const CallId huge = driver.Send(driver.Request(Prompt(1, 200), 10));
  EXPECT_EQ(driver.calls[huge].status->code(), absl::StatusCode::kResourceExhausted);
}

TEST(FleetTest, WhatFindsThatOtherRoutersHoldAPodGoesToAnother) {
  for (bool lacks_slots : {false, true}) {
    FleetDriver driver(Options());
    for (const char* name : {"a", "b"}) driver.Pod(name).verifier.options.num_pages = 30;
    if (lacks_slots) {
      driver.Pod("a").verifier.foreign_slots = 8;  // all
    } else {
      driver.Pod("a").verifier.foreign_pages = 29;
    }
    driver.List({"a", "b"});
    const CallId call = driver.Send(driver.Request(Prompt(0), 40));
    EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 0}));
    driver.WaitFor(1);
    EXPECT_EQ(driver.calls[call].ids, Alone(0, 40)) << lacks_slots;
  }
}

TEST(FleetTest, WhatFindsNoSlotBesideAnotherGoesToAnotherPod) {
  FleetDriver driver(Options());
  for (const char* name : {"a", "b"}) driver.Pod(name).verifier.options.num_pages = 300;
  driver.Pod("a").verifier.foreign_slots = 7;  // the pod has 8
  driver.List({"a", "b"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 400));
  driver.Send(driver.Request(Prompt(1), 400));
  const CallId third = driver.Send(driver.Request(Prompt(2), 20));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{2, 1}));
  while (!driver.calls[third].status.has_value()) ASSERT_TRUE(driver.Step());
  EXPECT_FALSE(driver.calls[first].status.has_value());
  EXPECT_EQ(driver.calls[third].ids, Alone(2, 20));
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 400));
}

TEST(FleetTest, AStreamIsDraftedForAgainWhereTheDrafterCan) {
  FleetDriver driver(Options());
  driver.Pod("a").drafter.foreign_slots = 8;
  driver.List({"a", "b"});
  const CallId call = driver.Send(driver.Request(Prompt(0), 60));
  while (driver.calls[call].ids.size() < 5) ASSERT_TRUE(driver.Step());
  EXPECT_TRUE(driver.Logged("the request is decoded without its drafts"));
  driver.Kill("a");
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, Alone(0, 60));
  EXPECT_GT(driver.calls[call].completion->speculation().num_drafts(), 0);
}

TEST(FleetTest, APreemptedStreamReturnsToItsPodThatLeftTheList) {
  FleetDriver driver(Options());
  driver.Pod("a").verifier.options.num_pages = 30;  // pages of 4 rows
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a"});
  // Each grows to 25 pages: two of them do not fit into the pod.
  const CallId first = driver.Send(driver.Request(Prompt(0), 90));
  const CallId second = driver.Send(driver.Request(Prompt(1), 90));
  while (driver.calls[first].ids.empty() || driver.calls[second].ids.empty()) {
    ASSERT_TRUE(driver.Step());
  }
  driver.fleet.SetPods({FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  ASSERT_EQ(driver.fleet.num_pods(), 2u);
  bool waited = false;
  EXPECT_TRUE(driver.Run([&](int) {
    if (driver.calls[second].status.has_value()) return;
    ASSERT_EQ(driver.fleet.num_pods(), 2u) << "the pod is let go while a stream needs it";
    EXPECT_EQ(driver.fleet.engine(1).num_running(), 0u) << "a stream changes its numerics";
    waited = waited || driver.fleet.num_waiting() == 1;
  }));
  EXPECT_TRUE(waited);
  EXPECT_GT(driver.fleet.State().counts.preemptions, 0u);
  for (const CallId call : {first, second}) {
    EXPECT_TRUE(driver.calls[call].status->ok()) << *driver.calls[call].status;
  }
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 90));
  EXPECT_EQ(driver.calls[second].ids, Alone(1, 90));
  EXPECT_EQ(driver.fleet.num_pods(), 1u);
  EXPECT_TRUE(driver.Logged("drained and let go"));
}

TEST(FleetTest, APodThatLeavesStaysWhileItsOnlyStreamFindsNoPageThere) {
  FleetDriver driver(Options());
  driver.Pod("a").verifier.options.num_pages = 30;
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a"});
  const CallId call = driver.Send(driver.Request(Prompt(0), 60));
  while (driver.calls[call].ids.size() < 5) ASSERT_TRUE(driver.Step());
  driver.fleet.SetPods({FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  // Another router takes all pages that are free: the stream gives its own back, and waits.
  driver.Pod("a").verifier.foreign_pages = 30;
  while (driver.fleet.num_waiting() == 0) ASSERT_TRUE(driver.Step());
  EXPECT_EQ(driver.fleet.engine(0).num_running(), 0u);
  EXPECT_EQ(driver.fleet.num_pods(), 2u) << "the pod is let go while a stream waits for it";
  driver.Pod("a").verifier.foreign_pages = 0;
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, Alone(0, 60));
  EXPECT_EQ(driver.fleet.num_pods(), 1u);
}

TEST(FleetTest, DrainsAndStops) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.List({"a", "b"});
  std::vector<CallId> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(driver.Send(driver.Request(Prompt(i), 30)));
  driver.fleet.Drain();
  const CallId late = driver.Send(driver.Request(Prompt(9), 5));
  EXPECT_EQ(driver.calls[late].status->code(), absl::StatusCode::kUnavailable);
  while (!driver.calls[calls[0]].status.has_value()) driver.Step();
  driver.Kill("a");  // a drain does not keep streams from moving
  driver.Step();
  driver.fleet.Stop(driver.now);
  driver.Execute();
  EXPECT_TRUE(driver.fleet.idle());
  for (CallId call : calls) EXPECT_TRUE(driver.calls[call].status.has_value());
  EXPECT_EQ(driver.calls[calls[3]].status->code(), absl::StatusCode::kUnavailable);
}

// ---------------------------------------------------------------- one event

// The Verify that waits for the pod's verifier; null: none does.
const v1::Verify* WaitingVerify(ToyPod& pod) {
  for (const auto& message : pod.inbox) {
    const auto* send = std::get_if<SendToVerifier>(&message);
    if (send != nullptr && send->command.has_verify()) return &send->command.verify();
  }
  return nullptr;
}

TEST(FleetTest, ANewRequestJoinsTheBatchThatIsSentInTheEventThatFreedItsSlot) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  FleetDriver driver(options);
  driver.List({"a"});
  const CallId first = driver.Send(driver.Request(Prompt(0), 20));
  const CallId second = driver.Send(driver.Request(Prompt(1), 20));
  EXPECT_EQ(driver.fleet.num_waiting(), 1);
  while (!driver.calls[first].status.has_value()) {
    ASSERT_LE(driver.Pod("a").inbox.size(), 1u);  // each step is one event at most
    ASSERT_TRUE(driver.Step());
  }
  EXPECT_EQ(driver.fleet.num_waiting(), 0);
  EXPECT_FALSE(driver.calls[second].status.has_value());
  const v1::Verify* verify = WaitingVerify(driver.Pod("a"));
  ASSERT_NE(verify, nullptr);
  ASSERT_EQ(verify->update_slots().closes_size(), 1) << "the slot of the first is closed";
  ASSERT_EQ(verify->items_size(), 1);
  EXPECT_TRUE(verify->items(0).has_open());
  EXPECT_TRUE(verify->items(0).sample());
  const auto& tokens = verify->items(0).token_ids();
  EXPECT_EQ(std::vector<int32_t>(tokens.begin(), tokens.end()), Prompt(1));
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[second].ids, Alone(1, 20));
}

TEST(FleetTest, WhatIsPreemptedWhileItsPodPlansIsPlacedElsewhereInTheSameEvent) {
  FleetDriver driver(Options());
  driver.Pod("a").verifier.options.num_pages = 30;  // pages of 4 rows
  driver.Pod("b").verifier.options.num_pages = 30;
  driver.List({"a"});
  // Each grows to 25 pages, so both do not fit into one pod.
  const CallId first = driver.Send(driver.Request(Prompt(0), 90));
  const CallId second = driver.Send(driver.Request(Prompt(1), 90));
  driver.fleet.SetPods({FleetDriver::Spec("a"), FleetDriver::Spec("b")}, driver.now);
  driver.Execute();
  while (!driver.fleet.engine(1).workers().ready(kVerifierPeer)) {
    ASSERT_TRUE(driver.Step());
  }
  ASSERT_EQ(driver.fleet.State().counts.preemptions, 0);
  while (driver.fleet.State().counts.preemptions == 0) {
    ASSERT_EQ(Running(driver), (std::vector<size_t>{2, 0}));
    ASSERT_TRUE(driver.Step());
  }
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(driver.fleet.num_waiting(), 0);
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[first].ids, Alone(0, 90));
  EXPECT_EQ(driver.calls[second].ids, Alone(1, 90));
  EXPECT_EQ(driver.fleet.State().counts.preemptions, 1);
}

// ---------------------------------------------------------------- any number of pods

TEST(FleetTest, ReplaysRunOnlyAtPodsOfEqualNumerics) {
  EngineOptions options = Options();
  options.audit_fraction = 1;
  FleetDriver driver(options);
  driver.Pod("b").verifier.options.numerics_id = "other";
  driver.List({"a", "b"});
  const CallId call = driver.Send(driver.Request(Prompt(0), 40));
  EXPECT_EQ(Running(driver), (std::vector<size_t>{1, 0}));
  while (!driver.calls[call].status.has_value()) ASSERT_TRUE(driver.Step());
  const auto comes_back_with = [&](const std::string& name, const std::string& numerics_id) {
    driver.Kill(name);
    driver.Pod(name).verifier.options.numerics_id = numerics_id;
    driver.Pod(name).alive = true;
    driver.WaitFor(5);
  };
  const auto num_replayed = [&] { return driver.fleet.audit().stats().num_replayed(); };
  comes_back_with("a", "another");
  EXPECT_EQ(num_replayed(), 0u) << "no pod has the numerics of the request";
  EXPECT_EQ(driver.NumOpen("a") + driver.NumOpen("b"), 0u);
  comes_back_with("b", "toy");
  EXPECT_EQ(num_replayed(), 1u);
  EXPECT_EQ(driver.fleet.audit().stats().num_mismatches(), 0u);
}

std::vector<std::string> Names(int num_pods) {
  return num_pods == 1 ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"};
}

TEST(FleetTest, QueueRefusalAndDrainAreTheSameForOnePodAndForTwo) {
  for (const int num_pods : {1, 2}) {
    EngineOptions options = Options();
    options.workers.max_slots = 1;
    options.max_queue = 1;
    FleetDriver driver(options);
    driver.List(Names(num_pods));
    std::vector<CallId> calls;
    for (int i = 0; i < num_pods + 1; ++i) {
      EXPECT_FALSE(driver.fleet.RefusesAll(driver.now).has_value());
      calls.push_back(driver.Send(driver.Request(Prompt(i), 30)));
    }
    EXPECT_EQ(Running(driver), std::vector<size_t>(static_cast<size_t>(num_pods), 1));
    EXPECT_EQ(driver.fleet.num_waiting(), 1u);

    const CallId refused = driver.Send(driver.Request(Prompt(8), 30));
    EXPECT_EQ(driver.calls[refused].status,
              absl::ResourceExhaustedError("the queue is full: 1 requests wait (--max-queue)"));
    EXPECT_EQ(driver.calls[refused].retry_milliseconds, 2000 / num_pods);
    EXPECT_EQ(driver.fleet.RefusesAll(driver.now)->status, driver.calls[refused].status);

    driver.fleet.Drain();
    const CallId late = driver.Send(driver.Request(Prompt(9), 30));
    EXPECT_EQ(driver.calls[late].status,
              absl::UnavailableError(
                  "the server is draining: it finishes what runs and takes nothing new"));
    EXPECT_EQ(driver.calls[late].retry_milliseconds, 0);
    EXPECT_TRUE(driver.Run());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(driver.calls[calls[i]].ids, Alone(static_cast<int>(i), 30)) << "it waited or ran";
    }
    EXPECT_EQ(driver.fleet.State().counts.finished, calls.size());
  }
}

TEST(FleetTest, OneQueueServesWhicheverPodHasASlotFirst) {
  for (const int num_pods : {1, 2}) {
    EngineOptions options = Options();
    options.workers.max_slots = 1;
    FleetDriver driver(options);
    driver.List(Names(num_pods));
    std::vector<CallId> waiting;
    for (int i = 0; i < num_pods; ++i) driver.Send(driver.Request(Prompt(i), 30));
    for (int i = 0; i < 4; ++i) waiting.push_back(driver.Send(driver.Request(Prompt(5 + i), 10)));
    std::vector<CallId> begun;
    EXPECT_TRUE(driver.Run([&](int) {
      for (const CallId call : waiting) {
        if (driver.calls[call].ids.empty()) continue;
        if (std::find(begun.begin(), begun.end(), call) == begun.end()) begun.push_back(call);
      }
    }));
    EXPECT_EQ(begun, waiting) << "first come, first served";
  }
}

TEST(FleetTest, WithoutVerifiersOnePodAndTwoSayTheSame) {
  for (const int num_pods : {1, 2}) {
    EngineOptions options = Options();
    options.workers.max_slots = 1;
    options.verifier_timeout_seconds = 2;
    FleetDriver driver(options);
    driver.List(Names(num_pods));
    std::vector<CallId> calls;
    for (int i = 0; i < num_pods + 1; ++i) {
      calls.push_back(driver.Send(driver.Request(Prompt(i), 200)));
    }
    while (driver.calls[calls[0]].ids.empty()) ASSERT_TRUE(driver.Step());
    for (const std::string& name : Names(num_pods)) driver.Kill(name);
    driver.WaitFor(1.9);
    for (const CallId call : calls) EXPECT_FALSE(driver.calls[call].status.has_value());
    driver.WaitFor(1);
    const std::string words = num_pods == 1 ? "the verifier has been gone for more than 2 s"
                                            : "all verifiers have been gone for more than 2 s";
    // Requests in slots are told of their own pod.
    EXPECT_EQ(driver.calls[calls.back()].status, absl::UnavailableError(words));
    for (const CallId call : calls) {
      ASSERT_TRUE(driver.calls[call].status.has_value());
      EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
    }
    EXPECT_EQ(driver.fleet.RefusesAll(driver.now)->status, absl::UnavailableError(words));
  }
}

TEST(FleetTest, StatesAreSums) {
  FleetDriver driver(Options());
  driver.Pod("a").verifier.options.num_pages = 100;
  driver.Pod("b").verifier.options.num_pages = 50;
  driver.List({"a", "b"});
  for (int i = 0; i < 3; ++i) driver.Send(driver.Request(Prompt(i), 30));
  const FleetState state = driver.fleet.State();
  EXPECT_EQ(state.gauges.running, 3);
  EXPECT_EQ(state.gauges.kv_pages[Worker::kVerifier], 150);
  EXPECT_EQ(state.gauges.slots, 16);
  EXPECT_EQ(state.num_pods_ready, 2);
  EXPECT_TRUE(state.drafter_attached());
  EXPECT_EQ(state.drafter_names(), "toy-draft");
  EXPECT_EQ(state.transports, std::vector<v1::RingTransport>{v1::RING_TRANSPORT_SHM});
  EXPECT_TRUE(driver.Run());
  EXPECT_EQ(driver.fleet.State().counts.finished, 3);
}

TEST(FleetTest, SumsOfCountsHaveEveryCount) {
  CountList ones;
  CountList twos;
  std::iota(ones.begin(), ones.end(), uint64_t{1});
  std::iota(twos.begin(), twos.end(), uint64_t{1000});
  Counts sum = std::bit_cast<Counts>(ones);
  sum += std::bit_cast<Counts>(twos);
  const auto sums = std::bit_cast<CountList>(sum);
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], ones[i] + twos[i]) << i;
}

// Pods die, come back, leave the list and return while requests of all modes run: every output is
// that of one undisturbed engine, each is ended once, and nothing is left.
class FleetStormTest : public ::testing::TestWithParam<int> {
 protected:
  struct Sent {
    int number;
    int max_tokens;
  };

  FleetStormTest() {
    const bool short_of_pages = Below(2) == 0;
    for (const std::string& name : names_) {
      if (short_of_pages) driver_.Pod(name).verifier.options.num_pages = 24;
    }
    driver_.List(listed_);
  }

  int Below(int limit) { return static_cast<int>(random_() % limit); }
  const std::string& AnyName() { return names_[static_cast<size_t>(Below(4))]; }

  EngineOptions AnyOptions() {
    EngineOptions options = Options();
    options.verifier_timeout_seconds = 1000;
    options.workers.max_slots = static_cast<uint32_t>(1 + Below(4));
    if (Below(2) == 0) options.draft_length.reset();
    options.num_cohorts = static_cast<uint32_t>(1 + Below(2));
    return options;
  }

  void Send() {
    const Sent one = {Below(20), 1 + Below(60)};
    GenerationRequest request = driver_.Request(Prompt(one.number), one.max_tokens);
    const int mode = Below(3);
    if (mode > 0) request.open.mutable_sampling()->set_temperature(1);
    if (mode == 1) request.open.set_reproducible(true);
    sent_[driver_.Send(std::move(request))] = one;
  }

  void List() {
    listed_ = {AnyName()};
    for (const std::string& name : names_) {
      if (Below(2) == 0 && name != listed_.front()) listed_.push_back(name);
    }
    std::vector<PodSpec> specs;
    for (const std::string& name : listed_) specs.push_back(FleetDriver::Spec(name));
    driver_.fleet.SetPods(specs, driver_.now);
    driver_.Execute();
  }

  void Cancel() {
    if (sent_.empty()) return;
    const CallId call = 1 + static_cast<CallId>(Below(static_cast<int>(sent_.size())));
    if (driver_.calls[call].status.has_value()) return;
    driver_.Cancel(call);
    canceled_.push_back(call);
  }

  void Disturb() {
    switch (Below(40)) {
      case 0:
        return driver_.Kill(AnyName());
      case 1:
        return List();
      case 2:
        return Cancel();
      case 3: {
        ToyPod& pod = driver_.Pod(AnyName());
        return pod.pong.set_draining(Below(2) == 0);
      }
      default:
        for (auto& [name, pod] : driver_.pods) {
          if (!pod->alive && Below(10) == 0) pod->alive = true;
        }
    }
  }

  void ExpectOutput(CallId call, const Sent& one) {
    const CallResult& result = driver_.calls[call];
    ASSERT_TRUE(result.status.has_value()) << call;
    const std::vector<int32_t> want = Alone(one.number, one.max_tokens);
    if (std::find(canceled_.begin(), canceled_.end(), call) != canceled_.end()) {
      EXPECT_TRUE(std::equal(result.ids.begin(), result.ids.end(), want.begin())) << call;
      return;
    }
    EXPECT_TRUE(result.status->ok()) << *result.status;
    EXPECT_EQ(result.ids, want) << call;
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  const std::vector<std::string> names_ = {"a", "b", "c", "d"};
  std::vector<std::string> listed_ = {"a", "b"};
  FleetDriver driver_{AnyOptions()};
  std::map<CallId, Sent> sent_;
  std::vector<CallId> canceled_;
};

TEST_P(FleetStormTest, NoTokenIsLostOrRepeated) {
  for (int step = 0; step < 600; ++step) {
    if (sent_.size() < 40 && Below(8) == 0) Send();
    Disturb();
    if (!driver_.Step()) driver_.Wait();
  }
  for (auto& [name, pod] : driver_.pods) pod->alive = true;
  ASSERT_TRUE(driver_.Run());
  for (const auto& [call, one] : sent_) ExpectOutput(call, one);
  driver_.WaitFor(2);
  EXPECT_TRUE(driver_.fleet.idle());
  EXPECT_EQ(driver_.fleet.num_pods(), listed_.size());
  for (const auto& [name, pod] : driver_.pods) EXPECT_TRUE(pod->verifier.slots.empty()) << name;
}

INSTANTIATE_TEST_SUITE_P(Seeds, FleetStormTest, ::testing::Range(1, 41));

}  // namespace
}  // namespace tandem
