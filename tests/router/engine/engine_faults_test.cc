// The engine when workers die, disagree, or break the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/router/fleet/fleet.h"
#include "tests/router/engine_driver.h"

namespace tandem::engine_faults_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Plainly;
using testing::Sampled;
using testing::Says;
using testing::ToyModel;

std::vector<int32_t> Prompt(size_t length, int32_t first = 1) {
  std::vector<int32_t> prompt(length);
  for (size_t i = 0; i < length; ++i) prompt[i] = (first + static_cast<int32_t>(i) * 11) % 60;
  return prompt;
}

// Faults come faster here than requests get on: none is taken for the cause.
EngineOptions Options(uint32_t draft_length = 3) {
  EngineOptions options;
  options.max_lost_rounds = 1000;
  options.draft_length = draft_length;
  return options;
}

// Both modes in which the ring is used and is not, side by side; `at` is the step of the fault.
void ExpectUndisturbed(EngineDriver& driver, const std::function<void(int step)>& fault, int at) {
  const CallId greedy = driver.Send(driver.Request(Prompt(20), 30));
  const CallId sampled = driver.Send(Sampled(driver.Request(Prompt(7), 30)));
  ASSERT_TRUE(driver.Run(fault)) << at;
  ASSERT_TRUE(driver.calls[greedy].status.has_value()) << at;
  EXPECT_TRUE(driver.calls[greedy].status->ok()) << at << *driver.calls[greedy].status;
  EXPECT_EQ(driver.calls[greedy].ids, Plainly(Prompt(20), 30)) << at;
  EXPECT_EQ(driver.calls[sampled].ids, Plainly(Prompt(7), 30)) << at;
  EXPECT_EQ(driver.engine().counts().ring_errors, 0u) << at;
  if (driver.engine().workers().ring(kDrafterPeer).open()) {
    EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 8u) << at;
  }
}

TEST(EngineFaultsTest, ADrafterThatDiesAtAnyStepChangesNothing) {
  for (int at = 0; at < 60; ++at) {
    EngineDriver driver(Options());
    driver.Start();
    ExpectUndisturbed(
        driver,
        [&](int step) {
          if (step == at) driver.Kill(Worker::kDrafter);
        },
        at);
  }
}

TEST(EngineFaultsTest, ADrafterThatComesBackDraftsAgain) {
  for (int at = 0; at < 40; ++at) {
    EngineDriver driver(Options());
    driver.Start();
    ExpectUndisturbed(
        driver,
        [&](int step) {
          if (step == at) driver.Kill(Worker::kDrafter);
          if (step == at + 3) driver.Revive(Worker::kDrafter);
          driver.fleet.Tick(driver.now += 0.02);
          driver.Execute();
        },
        at);
    driver.Revive(Worker::kDrafter);
    driver.fleet.Tick(driver.now += 2);
    driver.Execute();
    while (driver.Step()) {
    }
    const int before = driver.drafter.num_proposes;
    EXPECT_EQ(driver.Generate(Sampled(driver.Request(Prompt(5), 20))).ids, Plainly(Prompt(5), 20));
    EXPECT_GT(driver.drafter.num_proposes, before);
    EXPECT_TRUE(driver.engine().workers().ring(kDrafterPeer).open());
  }
}

TEST(EngineFaultsTest, AVerifierThatDiesAtAnyStepIsReplacedAndTheStreamsGoOnExactly) {
  for (int at = 0; at < 60; ++at) {
    EngineDriver driver(Options());
    driver.Start();
    ExpectUndisturbed(
        driver,
        [&](int step) {
          if (step == at) driver.Kill(Worker::kVerifier);
          if (step == at + 2) driver.Revive(Worker::kVerifier);
        },
        at);
  }
}

TEST(EngineFaultsTest, BothDyingAgainAndAgainChangesNothing) {
  for (int period = 5; period < 20; ++period) {
    EngineDriver driver(Options());
    driver.Start();
    ExpectUndisturbed(
        driver,
        [&](int step) {
          if (step % period == 0)
            driver.Kill(step % (2 * period) == 0 ? Worker::kVerifier : Worker::kDrafter);
          if (step % period == 2) {
            driver.Revive(Worker::kVerifier);
            driver.Revive(Worker::kDrafter);
          }
          driver.fleet.Tick(driver.now += 0.02);
          driver.Execute();
        },
        period);
  }
}

TEST(EngineFaultsTest, AVerifierThatStaysAwayEndsTheStreamsWithTheirCount) {
  EngineDriver driver(Options());
  driver.Start();
  const CallId running = driver.Send(driver.Request(Prompt(5), 1000));
  for (int i = 0; i < 12; ++i) driver.Step();
  driver.Kill(Worker::kVerifier);
  const CallId waiting = driver.Send(driver.Request(Prompt(6), 10));
  const double down_at = driver.now;
  ASSERT_TRUE(driver.Run());
  EXPECT_NEAR(driver.now - down_at, 30, 1.5);
  EXPECT_EQ(driver.calls[running].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.calls[running].emitted_tokens,
            static_cast<int>(driver.calls[running].ids.size()));
  EXPECT_FALSE(driver.calls[running].completion.has_value());
  EXPECT_EQ(driver.calls[waiting].status->code(), absl::StatusCode::kUnavailable);
  const CallId late = driver.Send(driver.Request(Prompt(6), 10));
  EXPECT_EQ(driver.calls[late].status->code(), absl::StatusCode::kUnavailable);

  driver.Revive(Worker::kVerifier);
  driver.fleet.Tick(driver.now += 2);
  driver.Execute();
  while (driver.Step()) {
  }
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(6), 10)).ids, Plainly(Prompt(6), 10));
}

// Kills the verifier whenever it is about to compute for slot 0 of `poison`'s prompt.
int KillWherePoisonIsComputed(EngineDriver& driver, CallId poison, size_t prompt_length) {
  int kills = 0;
  EXPECT_TRUE(driver.Run([&](int) {
    if (driver.to_verifier.empty() || driver.calls[poison].status.has_value()) return;
    for (const v1::VerifyItem& item : driver.to_verifier.front().command.verify().items()) {
      if (!item.has_open() || item.open().prompt_length() != prompt_length) continue;
      ++kills;
      driver.Kill(Worker::kVerifier);
      driver.Revive(Worker::kVerifier);
      return;
    }
  }));
  return kills;
}

TEST(EngineFaultsTest, APoisonRequestCostsTwoVerifiersAndTheOthersFinish) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  std::vector<CallId> neighbors;
  for (size_t i = 0; i < 3; ++i)
    neighbors.push_back(driver.Send(driver.Request(Prompt(6 + i), 50)));
  for (int i = 0; i < 12; ++i) driver.Step();
  const CallId poison = driver.Send(driver.Request(Prompt(40), 1000));
  for (size_t i = 3; i < 6; ++i)
    neighbors.push_back(driver.Send(driver.Request(Prompt(6 + i), 50)));
  EXPECT_EQ(KillWherePoisonIsComputed(driver, poison, 40), 2);
  EXPECT_EQ(driver.calls[poison].status->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(driver.calls[poison].status->message()).find("quarantined"),
            std::string::npos);
  for (size_t i = 0; i < neighbors.size(); ++i) {
    EXPECT_EQ(driver.calls[neighbors[i]].ids, Plainly(Prompt(6 + i), 50)) << i;
  }
  // It comes again, under another name: refused without a crash, until the quarantine is over.
  const CallId again = driver.Send(driver.Request(Prompt(40), 10));
  EXPECT_EQ(driver.calls[again].status->code(), absl::StatusCode::kFailedPrecondition);
  driver.now += 601;
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(40), 10)).ids, Plainly(Prompt(40), 10));
}

TEST(EngineFaultsTest, CopiesOfAPoisonPromptCostTwoVerifiersTogether) {
  for (const uint32_t num_cohorts : {1, 2}) {
    SCOPED_TRACE(num_cohorts);
    EngineOptions options = Options();
    options.max_lost_rounds = 2;
    options.num_cohorts = num_cohorts;
    EngineDriver driver(options);
    driver.Start();
    const CallId neighbor = driver.Send(driver.Request(Prompt(6), 50));
    for (int i = 0; i < 12; ++i) driver.Step();
    std::vector<CallId> copies;
    for (int i = 0; i < 4; ++i) copies.push_back(driver.Send(driver.Request(Prompt(40), 1000)));
    EXPECT_EQ(KillWherePoisonIsComputed(driver, copies.back(), 40), 2);
    for (const CallId copy : copies) {
      EXPECT_EQ(driver.calls[copy].status->code(), absl::StatusCode::kFailedPrecondition);
    }
    EXPECT_EQ(driver.calls[neighbor].ids, Plainly(Prompt(6), 50));
  }
}

// The client gives up before the router notices that the verifier died, and tries again.
TEST(EngineFaultsTest, APoisonRequestThatIsCanceledBeforeItsVerifierDiesIsRemembered) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const CallId poison = driver.Send(driver.Request(Prompt(40), 1000));
    ASSERT_FALSE(driver.to_verifier.empty());
    driver.Cancel(poison);
    driver.Kill(Worker::kVerifier);
    driver.Revive(Worker::kVerifier);
    driver.Run();
    driver.fleet.Tick(driver.now += 1);
    driver.Execute();
    while (driver.Step()) {
    }
  }
  const CallId again = driver.Send(driver.Request(Prompt(40), 1000));
  ASSERT_TRUE(driver.calls[again].status.has_value());
  EXPECT_EQ(driver.calls[again].status->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(6), 50)).ids, Plainly(Prompt(6), 50));
}

// A verifier that hangs is often noticed after the clients have given up.
TEST(EngineFaultsTest, ARequestThatIsCanceledWhileItDecodesLeavesItsPromptNearlyClean) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  const CallId first = driver.Send(driver.Request(Prompt(5), 1000));
  ASSERT_TRUE(driver.StepUntil([&] { return driver.calls[first].ids.size() > 40; }));
  ASSERT_TRUE(driver.StepUntil([&] { return !driver.to_verifier.empty(); }));
  driver.Cancel(first);
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  const CallId second = driver.Send(driver.Request(Prompt(5), 1000));
  ASSERT_TRUE(driver.RunUntil([&] { return driver.calls[second].ids.size() > 4; }));
  const Slots& slots = driver.engine().state().slots;
  const std::optional<uint32_t> slot = slots.SlotOf(second);
  ASSERT_TRUE(slot.has_value());
  EXPECT_EQ(slots[*slot].sequence->faults.verifiers_lost(), 0);
}

TEST(EngineFaultsTest, AVerifierThatIsRefusedDoesNotPutTheTimeoutOff) {
  EngineDriver driver(Options());
  driver.Start();
  const CallId call = driver.Send(driver.Request(Prompt(5), 1000));
  for (int i = 0; i < 12; ++i) driver.Step();
  driver.Kill(Worker::kVerifier);
  const double down_at = driver.now;
  driver.verifier.name = "another model";
  driver.Revive(Worker::kVerifier);
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_NEAR(driver.now - down_at, 30, 1.5);
}

TEST(EngineFaultsTest, ARequestThatGoesOnBetweenCrashesIsNoPoison) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  const CallId call = driver.Send(driver.Request(Prompt(5), 50));
  size_t seen = 0;
  int kills = 0;
  ASSERT_TRUE(driver.Run([&](int) {
    if (driver.calls[call].ids.size() == seen || driver.to_verifier.empty()) return;
    seen = driver.calls[call].ids.size();
    ++kills;
    driver.Kill(Worker::kVerifier);
    driver.Revive(Worker::kVerifier);
  }));
  EXPECT_GT(kills, 5);
  EXPECT_EQ(driver.calls[call].ids, Plainly(Prompt(5), 50));
}

TEST(EngineFaultsTest, WorkersThatLoseRowsAreResynchronized) {
  for (int at = 0; at < 40; ++at) {
    for (bool whole_slot : {false, true}) {
      EngineDriver driver(Options());
      driver.Start();
      ExpectUndisturbed(
          driver,
          [&](int step) {
            if (step != at) return;
            for (auto* slots : {&driver.verifier.slots, &driver.drafter.slots}) {
              for (auto& [id, slot] : *slots) {
                if (whole_slot) {
                  slot = testing::ToySlot();
                } else {
                  slot.tokens.resize(slot.tokens.size() / 2);
                }
              }
            }
          },
          at);
    }
  }
}

TEST(EngineFaultsTest, WorkersThatHoldOtherTokensAreRebuilt) {
  for (int at = 0; at < 40; ++at) {
    EngineDriver driver(Options());
    driver.Start();
    ExpectUndisturbed(
        driver,
        [&](int step) {
          if (step != at) return;
          for (auto* slots : {&driver.verifier.slots, &driver.drafter.slots}) {
            for (auto& [id, slot] : *slots) {
              if (!slot.tokens.empty()) slot.tokens[0] ^= 1;
            }
          }
        },
        at);
  }
}

// Several routers share the verifier.
TEST(EngineFaultsTest, ASlotThatTheVerifierHadNoneForIsOpenedAgain) {
  for (bool has_neighbor : {false, true}) {
    EngineDriver driver(Options());
    driver.verifier.options.num_pages = 200;
    driver.verifier.foreign_slots = has_neighbor ? 7 : 8;  // the verifier has 8
    driver.Start();
    const CallId neighbor = has_neighbor ? driver.Send(driver.Request(Prompt(7), 60)) : 0;
    const CallId call = driver.Send(driver.Request(Prompt(20), 10));
    const double start = driver.now;
    ASSERT_TRUE(driver.Run([&](int) {
      if (driver.now > start + 0.3) driver.verifier.foreign_slots = 0;
    }));
    ASSERT_TRUE(driver.calls[call].status.has_value());
    EXPECT_TRUE(driver.calls[call].status->ok()) << *driver.calls[call].status;
    EXPECT_EQ(driver.calls[call].ids, Plainly(Prompt(20), 10));
    EXPECT_GT(driver.verifier.num_refused_opens, 0);
    EXPECT_LT(driver.verifier.num_refused_opens, 20) << "it does not spin";
    if (has_neighbor) {
      EXPECT_EQ(driver.calls[neighbor].ids, Plainly(Prompt(7), 60));
    }
  }
}

TEST(EngineFaultsTest, AVerifierThatAbortsForeverEndsTheRequestAlone) {
  EngineDriver driver(Options());
  driver.Start();
  const CallId doomed = driver.Send(driver.Request(Prompt(5), 50));
  const CallId neighbor = driver.Send(driver.Request(Prompt(6), 50));
  driver.change_verifier_reply = [](v1::VerifierReply& reply) {
    if (!reply.has_verify()) return;
    for (v1::VerifyResult& result : *reply.mutable_verify()->mutable_results()) {
      if (result.state().slot() == 0) {
        result.mutable_state()->set_code(v1::WORKER_CODE_ABORTED);
        result.mutable_state()->set_cached_len(0);
      }
    }
  };
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[doomed].status->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(driver.calls[neighbor].ids, Plainly(Prompt(6), 50));
}

TEST(EngineFaultsTest, OfWhatAWorkerSaysOnlySomeGoesToTheLog) {
  const std::string endless(1 << 20, 'x');
  const std::string cut = std::string(512, 'x') + "… (1048576 bytes)";
  EngineDriver driver(Options());
  driver.Start();
  driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
    if (!reply.has_verify()) return;
    for (v1::VerifyResult& result : *reply.mutable_verify()->mutable_results()) {
      result.mutable_state()->set_code(v1::WORKER_CODE_INTERNAL);
      result.mutable_state()->set_message(endless);
    }
  };
  const CallResult result = driver.Generate(driver.Request(Prompt(5), 50));
  ASSERT_TRUE(result.status.has_value());
  EXPECT_EQ(std::string(result.status->message()),
            "the verifier failed at this request (the router's log says why)");
  v1::VerifierReply refusal;
  refusal.set_id(12345);
  refusal.mutable_error()->set_message(endless);
  driver.fleet.OnVerifierReply(driver.sessions[Worker::kVerifier], refusal, driver.now);
  driver.fleet.OnSessionLost(Worker::kVerifier, driver.sessions[Worker::kVerifier], endless,
                             driver.now);
  driver.Execute();
  EXPECT_TRUE(Says(driver, absl::StrCat("WORKER_CODE_INTERNAL: ", cut)));
  EXPECT_TRUE(Says(driver, "verifier: the worker refused a command: " + cut));
  EXPECT_TRUE(Says(driver, "verifier: session lost: " + cut));
  for (const std::string& line : driver.log) EXPECT_LT(line.size(), 1000u);
}

// What a worker may say of itself.
constexpr char kInternals[] = "/opt/models/x.bin 0x7f12ab34cd memfd:tandem-ring";

bool HasInternals(const std::string& text) {
  const std::initializer_list<const char*> parts = {"/opt/models", "0x7f12ab34cd", "memfd"};
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

// Clients and the live page are told nothing of it.
void ExpectInternalsAreForTheLog(const EngineDriver& driver, const std::string& where) {
  for (const auto& [call, result] : driver.calls) {
    if (!result.status.has_value()) continue;
    EXPECT_FALSE(HasInternals(std::string(result.status->message()))) << where;
  }
  for (const LogLine& line : driver.lines) {
    if (line.level == LogLine::Level::kDebug) continue;
    const std::string& shown = line.summary.empty() ? line.text : line.summary;
    EXPECT_FALSE(HasInternals(shown)) << where << ": " << shown;
  }
}

// The line of the log that has it all, or none.
const LogLine* LineWithInternals(const EngineDriver& driver) {
  for (const LogLine& line : driver.lines) {
    if (line.text.find(kInternals) != std::string::npos) return &line;
  }
  return nullptr;
}

// Makes an error of the first reply of that kind.
template <typename Reply>
std::function<void(Reply&)> RefuseOnce(typename Reply::KindCase kind, bool* done) {
  return [kind, done](Reply& reply) {
    if (reply.kind_case() != kind || std::exchange(*done, true)) return;
    reply.mutable_error()->set_code(v1::WORKER_CODE_INTERNAL);
    reply.mutable_error()->set_message(kInternals);
  };
}

// The worker is attached anew, and serves.
void AttachAndServe(EngineDriver& driver, Worker worker, const std::string& where) {
  driver.Kill(worker);
  driver.Revive(worker);
  driver.fleet.Tick(driver.now += 2);
  driver.Execute();
  while (driver.Step()) {
  }
  const CallId greedy = driver.Send(driver.Request(Prompt(20), 30));
  const CallId sampled = driver.Send(Sampled(driver.Request(Prompt(7), 30)));
  ASSERT_TRUE(driver.Run()) << where;
  EXPECT_EQ(driver.calls[greedy].ids, Plainly(Prompt(20), 30)) << where;
  EXPECT_EQ(driver.calls[sampled].ids, Plainly(Prompt(7), 30)) << where;
}

TEST(EngineFaultsTest, WhatAWorkerSaysOfARefusedCommandIsForTheLogAlone) {
  for (const auto kind :
       {v1::VerifierReply::kAttach, v1::VerifierReply::kCreateRing, v1::VerifierReply::kConfirmRing,
        v1::VerifierReply::kVerify, v1::VerifierReply::kUpdateSlots}) {
    const std::string where = absl::StrCat("verifier's reply ", static_cast<int>(kind));
    EngineDriver driver(Options());
    driver.Start();
    bool done = false;
    driver.change_verifier_reply = RefuseOnce<v1::VerifierReply>(kind, &done);
    AttachAndServe(driver, Worker::kVerifier, where);
    EXPECT_TRUE(done) << where;
    EXPECT_NE(LineWithInternals(driver), nullptr) << where;
    ExpectInternalsAreForTheLog(driver, where);
  }
  for (const auto kind :
       {v1::DraftReply::kAttach, v1::DraftReply::kVocabulary, v1::DraftReply::kOpenRing,
        v1::DraftReply::kPropose, v1::DraftReply::kUpdateSlots}) {
    const std::string where = absl::StrCat("drafter's reply ", static_cast<int>(kind));
    EngineDriver driver(Options());
    driver.Start();
    bool done = false;
    driver.change_draft_reply = RefuseOnce<v1::DraftReply>(kind, &done);
    // Vocabularies are read where they differ.
    if (kind == v1::DraftReply::kVocabulary) driver.drafter.options.fingerprint = "other";
    AttachAndServe(driver, Worker::kDrafter, where);
    EXPECT_TRUE(done) << where;
    EXPECT_NE(LineWithInternals(driver), nullptr) << where;
    ExpectInternalsAreForTheLog(driver, where);
  }
}

TEST(EngineFaultsTest, WhatAWorkerThatNeverFitSaysIsForTheOneWhoStartedTheRouter) {
  EngineDriver driver(Options());
  bool done = false;
  driver.change_verifier_reply = RefuseOnce<v1::VerifierReply>(v1::VerifierReply::kAttach, &done);
  driver.Start();
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(std::string(driver.gave_up->message()),
            absl::StrCat("verifier: the worker refused a command: ", kInternals));
  ExpectInternalsAreForTheLog(driver, "attach");
}

constexpr v1::WorkerCode kRefusals[] = {
    v1::WORKER_CODE_ABORTED,
    v1::WORKER_CODE_INVALID_ARGUMENT,
    v1::WORKER_CODE_RESOURCE_EXHAUSTED,
    v1::WORKER_CODE_NON_FINITE_LOGITS,
    v1::WORKER_CODE_FAILED_PRECONDITION,
    v1::WORKER_CODE_INTERNAL,
};

TEST(EngineFaultsTest, WhatTheVerifierSaysOfARequestIsForTheLogAlone) {
  for (const v1::WorkerCode code : kRefusals) {
    const std::string where = v1::WorkerCode_Name(code);
    EngineDriver driver(Options());
    driver.Start();
    driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
      if (!reply.has_verify()) return;
      for (v1::VerifyResult& result : *reply.mutable_verify()->mutable_results()) {
        result.mutable_state()->set_code(code);
        result.mutable_state()->set_cached_len(0);
        result.mutable_state()->set_message(kInternals);
      }
    };
    GenerationRequest request = driver.Request(Prompt(5), 50);
    request.request_id = "the-one";
    const CallResult result = driver.Generate(std::move(request));
    ASSERT_TRUE(result.status.has_value()) << where;
    const bool is_room = code == v1::WORKER_CODE_RESOURCE_EXHAUSTED;
    EXPECT_EQ(result.status->code(),
              is_room ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal)
        << where;
    ExpectInternalsAreForTheLog(driver, where);
    // The router has words of its own for logits that are not finite.
    if (code == v1::WORKER_CODE_NON_FINITE_LOGITS) continue;
    EXPECT_NE(std::string(result.status->message()).find("(the router's log says why)"),
              std::string::npos)
        << where;
    const LogLine* line = LineWithInternals(driver);
    ASSERT_NE(line, nullptr) << where;
    EXPECT_EQ(line->request_id, "the-one") << where;
    EXPECT_NE(line->text.find(where), std::string::npos) << line->text;
  }
}

TEST(EngineFaultsTest, WhatTheDrafterSaysOfARequestIsForTheLogAlone) {
  for (const v1::WorkerCode code : kRefusals) {
    const std::string where = v1::WorkerCode_Name(code);
    EngineDriver driver(Options());
    driver.Start();
    driver.change_draft_reply = [&](v1::DraftReply& reply) {
      if (!reply.has_propose()) return;
      for (v1::ProposeResult& result : *reply.mutable_propose()->mutable_results()) {
        result.mutable_state()->set_code(code);
        result.mutable_state()->set_cached_len(0);
        result.mutable_state()->set_message(kInternals);
      }
    };
    GenerationRequest request = driver.Request(Prompt(5), 50);
    request.request_id = "the-one";
    EXPECT_EQ(driver.Generate(std::move(request)).ids, Plainly(Prompt(5), 50)) << where;
    ExpectInternalsAreForTheLog(driver, where);
    // Those two are met without a word.
    if (code == v1::WORKER_CODE_ABORTED || code == v1::WORKER_CODE_NON_FINITE_LOGITS) continue;
    const LogLine* line = LineWithInternals(driver);
    ASSERT_NE(line, nullptr) << where;
    EXPECT_EQ(line->request_id, "the-one") << where;
  }
}

TEST(EngineFaultsTest, WhatIsSaidOfTheRingOrOfALostSessionIsForTheLogAlone) {
  EngineDriver driver(Options());
  driver.verifier.spoil_ring = true;
  driver.Start();
  driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
    if (!reply.has_verify()) return;
    for (v1::VerifyResult& result : *reply.mutable_verify()->mutable_results()) {
      if (!result.ring_error().empty()) result.set_ring_error(kInternals);
    }
  };
  EXPECT_EQ(driver.Generate(Sampled(driver.Request(Prompt(5), 20))).ids, Plainly(Prompt(5), 20));
  const LogLine* line = LineWithInternals(driver);
  ASSERT_NE(line, nullptr);
  EXPECT_NE(line->request_id, "");
  for (Worker worker : {Worker::kVerifier, Worker::kDrafter}) {
    driver.fleet.OnSessionLost(worker, driver.sessions[worker], kInternals, driver.now);
    driver.Execute();
    EXPECT_TRUE(Says(driver, absl::StrCat(WorkerName(worker), ": session lost: ", kInternals)));
  }
  ExpectInternalsAreForTheLog(driver, "ring and sessions");
}

TEST(EngineFaultsTest, AWorkerThatAnswersWithSomethingElseIsAttachedAnew) {
  for (const bool under_the_batchs_id : {false, true}) {
    EngineDriver driver(Options());
    driver.Start();
    const CallId call = driver.Send(driver.Request(Prompt(5), 30));
    int num_wrong = 0;
    driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
      if (!reply.has_verify() || ++num_wrong > 2) return;
      if (under_the_batchs_id) {
        reply.mutable_attach();
      } else {
        reply.set_id(reply.id() + 1000);
      }
    };
    int num_wrong_drafts = 0;
    driver.change_draft_reply = [&](v1::DraftReply& reply) {
      if (!reply.has_propose() || ++num_wrong_drafts > 2) return;
      if (under_the_batchs_id) {
        reply.mutable_vocabulary();
      } else {
        reply.set_id(reply.id() + 1000);
      }
    };
    ASSERT_TRUE(driver.Run());
    EXPECT_EQ(driver.calls[call].ids, Plainly(Prompt(5), 30));
    EXPECT_GT(num_wrong, 2);
    EXPECT_GE(num_wrong_drafts, 1);
  }
}

TEST(EngineFaultsTest, TimesThatCannotBeAreNotBelieved) {
  for (const double seconds : {1e300, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN(), -1e300}) {
    EngineDriver driver(Options());
    driver.Start();
    driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
      if (!reply.has_verify()) return;
      reply.mutable_verify()->set_compute_seconds(seconds);
      reply.mutable_verify()->set_transfer_seconds(seconds);
    };
    driver.change_draft_reply = [&](v1::DraftReply& reply) {
      if (!reply.has_propose()) return;
      reply.mutable_propose()->set_compute_seconds(seconds);
      reply.mutable_propose()->set_catch_up_seconds(seconds);
    };
    const double start = driver.now;
    const CallResult result = driver.Generate(driver.Request(Prompt(5), 30));
    EXPECT_EQ(result.ids, Plainly(Prompt(5), 30));
    EXPECT_LT(driver.now, start + 10);
    ASSERT_TRUE(result.completion.has_value());
    const v1::Timings& timings = result.completion->timings();
    EXPECT_LE(timings.verify_seconds(), timings.decode_seconds() + 1);
    EXPECT_GE(timings.verify_seconds(), 0);
    EXPECT_GE(timings.draft_seconds(), 0);
    EXPECT_LT(driver.fleet.NextDeadline(), driver.now + 100) << "hung workers are still noticed";
  }
}

TEST(EngineFaultsTest, ADrafterThatAbortsForeverIsLeftOut) {
  EngineDriver driver(Options());
  driver.Start();
  driver.change_draft_reply = [](v1::DraftReply& reply) {
    for (v1::ProposeResult& result : *reply.mutable_propose()->mutable_results()) {
      result.mutable_state()->set_code(v1::WORKER_CODE_ABORTED);
      result.mutable_state()->set_prefix_hash(1);
    }
  };
  const CallResult result = driver.Generate(driver.Request(Prompt(5), 50));
  EXPECT_EQ(result.ids, Plainly(Prompt(5), 50));
  EXPECT_LE(driver.drafter.num_proposes, 5);
}

TEST(EngineFaultsTest, NonFiniteTargetLogitsEndTheRequestAlone) {
  EngineDriver driver(Options());
  driver.verifier.non_finite_at = 30;
  driver.Start();
  const CallId doomed = driver.Send(driver.Request(Prompt(20), 50));
  const CallId neighbor = driver.Send(driver.Request(Prompt(6), 20));
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[doomed].status->code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(driver.calls[doomed].status->message()).find("non-finite"),
            std::string::npos);
  EXPECT_EQ(driver.calls[doomed].emitted_tokens, static_cast<int>(driver.calls[doomed].ids.size()));
  EXPECT_LT(driver.calls[doomed].ids.size(), 11u);
  EXPECT_EQ(driver.calls[neighbor].ids, Plainly(Prompt(6), 20));
}

TEST(EngineFaultsTest, NonFiniteDraftLogitsMeanNoDraftAndNothingElse) {
  EngineDriver driver(Options());
  driver.drafter.non_finite = true;
  driver.Start();
  const CallResult result = driver.Generate(Sampled(driver.Request(Prompt(5), 20)));
  EXPECT_EQ(result.ids, Plainly(Prompt(5), 20));
  EXPECT_EQ(result.completion->speculation().num_drafts(), 0);
  EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 8u);
}

TEST(EngineFaultsTest, ABlockWhoseRowsFailTheirChecksIsAPlainRound) {
  EngineDriver driver(Options());
  driver.verifier.spoil_ring = true;
  driver.Start();
  const CallResult result = driver.Generate(Sampled(driver.Request(Prompt(5), 20)));
  EXPECT_EQ(result.ids, Plainly(Prompt(5), 20));
  EXPECT_EQ(result.completion->speculation().num_plain_rounds(), 20);
  EXPECT_GT(driver.engine().counts().ring_errors, 0u);
  EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 8u);
}

TEST(EngineFaultsTest, ADrafterThatHangsIsGivenUpWithoutHeartbeatsToo) {
  EngineOptions options = Options();
  options.workers.heartbeat_timeout_seconds = 0;
  EngineDriver driver(options);
  driver.Start();
  driver.drafter_hangs = true;
  const double before = driver.now;
  const CallId call = driver.Send(driver.Request(Prompt(5), 20));
  ASSERT_TRUE(driver.Run([&](int) { driver.drafter_hangs = !Says(driver, "no drafts"); }));
  EXPECT_EQ(driver.calls[call].ids, Plainly(Prompt(5), 20));
  EXPECT_NEAR(driver.now - before, 30, 5);
  EXPECT_TRUE(Says(driver, "no drafts within 30 s"));
}

// What a worker sends is checked before it is used.
TEST(EngineFaultsTest, ADrafterThatBreaksTheRulesIsDroppedAndTheOutputIsRight) {
  const std::vector<std::function<void(v1::ProposeReply*)>> faults = {
      [](v1::ProposeReply* reply) { reply->clear_results(); },
      [](v1::ProposeReply* reply) { reply->add_results(); },
      [](v1::ProposeReply* reply) { reply->mutable_results(0)->mutable_state()->set_slot(7); },
      [](v1::ProposeReply* reply) { reply->mutable_results(0)->set_draft_token_ids(0, 64); },
      [](v1::ProposeReply* reply) { reply->mutable_results(0)->set_draft_token_ids(0, -1); },
      [](v1::ProposeReply* reply) {
        for (int i = 0; i < 9; ++i) reply->mutable_results(0)->add_draft_token_ids(1);
      },
      [](v1::ProposeReply* reply) { reply->mutable_results(0)->add_parents(3); },
      [](v1::ProposeReply* reply) {
        reply->mutable_results(0)->mutable_state()->set_cached_len(4000000000u);
      },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    EngineDriver driver(Options());
    driver.Start();
    bool done = false;
    driver.change_draft_reply = [&](v1::DraftReply& reply) {
      if (reply.has_propose() && !done) {
        faults[i](reply.mutable_propose());
        done = true;
      }
    };
    ExpectUndisturbed(driver, {}, static_cast<int>(i));
    EXPECT_TRUE(Says(driver, "broke the protocol")) << i;
  }
}

TEST(EngineFaultsTest, AVerifierThatBreaksTheRulesIsDroppedAndTheOutputIsRight) {
  const std::vector<std::function<void(v1::VerifyReply*)>> faults = {
      [](v1::VerifyReply* reply) { reply->clear_results(); },
      [](v1::VerifyReply* reply) { reply->mutable_results(0)->mutable_state()->set_slot(7); },
      [](v1::VerifyReply* reply) { reply->mutable_results(0)->set_next_token_id(64); },
      [](v1::VerifyReply* reply) { reply->mutable_results(0)->set_next_token_id(-1); },
      [](v1::VerifyReply* reply) { reply->mutable_results(0)->set_num_accepted(4000000000u); },
      [](v1::VerifyReply* reply) { reply->mutable_results(0)->mutable_state()->set_cached_len(1); },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    EngineDriver driver(Options());
    driver.Start();
    int verifies = 0;
    driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
      if (reply.has_verify() && ++verifies == 3) faults[i](reply.mutable_verify());
    };
    ExpectUndisturbed(driver, {}, static_cast<int>(i));
    EXPECT_TRUE(Says(driver, "broke the protocol")) << i;
  }
}

// The drafter sends wrong log-prob rows once. It is dropped for the reason `why`.
void ExpectDroppedForRows(const std::function<void(v1::LogProbChunk*)>& fault,
                          const std::string& why) {
  EngineDriver driver(Options());
  driver.drafter.options.transports = {v1::RING_TRANSPORT_INLINE};
  driver.Start();
  int chunks = 0;
  driver.change_draft_reply = [&](v1::DraftReply& reply) {
    if (reply.has_log_prob_chunk() && ++chunks == 2) fault(reply.mutable_log_prob_chunk());
  };
  ExpectUndisturbed(driver, {}, 0);
  EXPECT_TRUE(Says(driver, why));
}

TEST(EngineFaultsTest, RowsNobodyAskedForDropTheDrafter) {
  ExpectDroppedForRows([](v1::LogProbChunk* chunk) { chunk->mutable_ring()->set_entry(99); },
                       "nobody asked for");
}

TEST(EngineFaultsTest, RowsOutOfOrderDropTheDrafter) {
  ExpectDroppedForRows([](v1::LogProbChunk* chunk) { chunk->set_offset_bytes(4); },
                       "bytes of log-prob rows at 4, after 0 of");
}

TEST(EngineFaultsTest, ABatchThatIsRefusedAsAWholeIsRedoneInANewSession) {
  EngineDriver driver(Options());
  driver.Start();
  int batches = 0;
  driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
    if (reply.has_verify() && ++batches == 4) reply.mutable_error()->set_message("no");
  };
  int drafts = 0;
  driver.change_draft_reply = [&](v1::DraftReply& reply) {
    if (reply.has_propose() && ++drafts == 2) reply.mutable_error()->set_message("no");
  };
  ExpectUndisturbed(driver, {}, 0);
  EXPECT_TRUE(Says(driver, "verifier: session lost: the worker refused a command: no"));
  EXPECT_TRUE(Says(driver, "draft: session lost: the worker refused a command: no"));
}

TEST(EngineFaultsTest, ARefusalOfWhatIsGivenUpAlreadyCostsNothing) {
  EngineDriver driver(Options());
  driver.Start();
  const SessionId session = driver.sessions[Worker::kVerifier];
  v1::VerifierReply refusal;
  refusal.set_id(12345);
  refusal.mutable_error()->set_message("there is no such ring");
  driver.fleet.OnVerifierReply(session, refusal, driver.now);
  driver.Execute();
  EXPECT_EQ(driver.sessions[Worker::kVerifier], session);
  EXPECT_TRUE(Says(driver, "no such ring"));
}

TEST(EngineFaultsTest, AWorkerThatAnswersPingsButLostTheBatchIsDropped) {
  for (Worker worker : {Worker::kVerifier, Worker::kDrafter}) {
    EngineDriver driver(Options());
    driver.Start();
    const CallId call = driver.Send(driver.Request(Prompt(5), 20));
    const auto is_batch = [&] {
      return worker == Worker::kVerifier
                 ? !driver.to_verifier.empty() && driver.to_verifier.front().command.has_verify()
                 : !driver.to_drafter.empty() && driver.to_drafter.front().command.has_propose();
    };
    while (!is_batch()) ASSERT_TRUE(driver.Step());
    driver.to_verifier.clear();
    driver.to_drafter.clear();
    v1::WatchPong pong;
    pong.set_computing(true);
    for (int i = 0; i < 20; ++i) {  // busy for long: that is no reason
      driver.fleet.OnPong(worker, driver.sessions[worker], pong, driver.now += 0.5);
    }
    EXPECT_FALSE(Says(driver, "but no batch"));
    pong.set_computing(false);
    for (int i = 0; i < 8; ++i) {
      driver.fleet.OnPong(worker, driver.sessions[worker], pong, driver.now += 0.5);
      driver.Execute();
    }
    EXPECT_TRUE(Says(driver, "but no batch"));
    ASSERT_TRUE(driver.Run());
    EXPECT_EQ(driver.calls[call].ids, Plainly(Prompt(5), 20));
  }
}

TEST(EngineFaultsTest, AVerifierThatAnswersOneRequestWronglyEachTimeIsNotAskedForever) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  const CallId doomed = driver.Send(driver.Request(Prompt(5), 50));
  const CallId neighbor = driver.Send(driver.Request(Prompt(6), 50));
  driver.change_verifier_reply = [](v1::VerifierReply& reply) {
    if (!reply.has_verify()) return;
    for (v1::VerifyResult& result : *reply.mutable_verify()->mutable_results()) {
      if (result.state().slot() == 0) result.set_num_accepted(99);
    }
  };
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[doomed].status->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver.calls[neighbor].ids, Plainly(Prompt(6), 50));
}

TEST(EngineFaultsTest, ADrafterThatAnswersEveryRequestWronglyIsLostTwiceAndNotTwiceForEach) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  driver.drafter_first = true;
  std::vector<CallId> calls;
  for (size_t i = 0; i < 4; ++i) calls.push_back(driver.Send(driver.Request(Prompt(5 + i), 1000)));
  int num_wrong = 0;
  driver.change_draft_reply = [&](v1::DraftReply& reply) {
    if (!reply.has_propose()) return;
    bool any = false;
    for (v1::ProposeResult& result : *reply.mutable_propose()->mutable_results()) {
      if (result.draft_token_ids().empty()) continue;
      result.set_draft_token_ids(0, -1);
      any = true;
    }
    num_wrong += any ? 1 : 0;
  };
  ASSERT_TRUE(driver.Run([&](int) {
    driver.fleet.Tick(driver.now);
    driver.Execute();
  }));
  EXPECT_GE(num_wrong, 2);
  EXPECT_LE(num_wrong, 4) << "a request can miss the batch that the others are in";
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(driver.calls[calls[i]].ids, Plainly(Prompt(5 + i), 1000)) << i;
  }
}

TEST(EngineFaultsTest, ADrafterThatAnswersOneRequestWronglyEachTimeIsNotAskedForever) {
  EngineOptions options = Options();
  options.max_lost_rounds = 2;
  EngineDriver driver(options);
  driver.Start();
  driver.drafter_first = true;
  const CallId undrafted = driver.Send(driver.Request(Prompt(5), 1000));
  const CallId neighbor = driver.Send(driver.Request(Prompt(6), 1000));
  int num_wrong = 0;
  driver.change_draft_reply = [&](v1::DraftReply& reply) {
    if (!reply.has_propose()) return;
    for (v1::ProposeResult& result : *reply.mutable_propose()->mutable_results()) {
      if (result.state().slot() != 0 || result.draft_token_ids().empty()) continue;
      result.set_draft_token_ids(0, -1);
      ++num_wrong;
    }
  };
  // The drafter is attached again after a while.
  ASSERT_TRUE(driver.Run([&](int) {
    driver.fleet.Tick(driver.now);
    driver.Execute();
  }));
  EXPECT_EQ(num_wrong, 2);
  EXPECT_TRUE(Says(driver, "the drafter was lost 2 times in a row while drafting for it"));
  EXPECT_GT(driver.calls[neighbor].completion->speculation().num_drafts(), 50)
      << "an answer to another request is no fault of this one";
  EXPECT_EQ(driver.calls[undrafted].ids, Plainly(Prompt(5), 1000));
  EXPECT_EQ(driver.calls[neighbor].ids, Plainly(Prompt(6), 1000));
}

TEST(EngineFaultsTest, RepliesToNothingAreIgnored) {
  EngineDriver driver(Options());
  driver.Start();
  v1::DraftReply draft;
  draft.set_id(12345);
  draft.mutable_propose()->add_results();
  driver.fleet.OnDraftReply(driver.sessions[Worker::kDrafter], draft, driver.now);
  v1::VerifierReply verdict;
  verdict.set_id(12345);
  verdict.mutable_verify()->add_results();
  driver.fleet.OnVerifierReply(driver.sessions[Worker::kVerifier], verdict, driver.now);
  driver.fleet.OnVerifierReply(9999, verdict, driver.now);
  driver.Execute();
  EXPECT_EQ(driver.Generate(driver.Request(Prompt(5), 20)).ids, Plainly(Prompt(5), 20));
}

}  // namespace
}  // namespace tandem::engine_faults_test
