#include "services/router/fleet/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/router/engine_driver.h"

namespace tandem::engine_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Plainly;
using testing::ToyModel;

constexpr int32_t kEndOfText = 63;

std::vector<int32_t> Prompt(size_t length, int32_t first = 1) {
  std::vector<int32_t> prompt(length);
  for (size_t i = 0; i < length; ++i) prompt[i] = (first + static_cast<int32_t>(i) * 7) % 60;
  return prompt;
}

EngineOptions Options(uint32_t draft_length = 4) {
  EngineOptions options;
  options.draft_length = draft_length;
  return options;
}

enum class Mode { kGreedy, kSampled, kReproducible };

GenerationRequest InMode(GenerationRequest request, Mode mode) {
  request.open.mutable_sampling()->set_temperature(mode == Mode::kGreedy ? 0 : 1);
  request.open.set_reproducible(mode == Mode::kReproducible);
  return request;
}

TEST(EngineTest, OutputEqualsPlainDecodingForEveryDraftLengthModeAndDrafter) {
  for (int agreement : {0, 70, 100}) {
    for (Mode mode : {Mode::kGreedy, Mode::kSampled, Mode::kReproducible}) {
      for (uint32_t draft_length = 0; draft_length <= 9; ++draft_length) {
        ToyModel model;
        model.percent_agreement = agreement;
        EngineDriver driver(Options(draft_length), model);
        driver.Start();
        const CallResult result = driver.Generate(InMode(driver.Request(Prompt(9), 50), mode));
        ASSERT_EQ(result.ids, Plainly(model, Prompt(9), 50)) << agreement << " " << draft_length;
        ASSERT_TRUE(result.status.has_value() && result.status->ok());
        ASSERT_TRUE(result.completion.has_value());
        EXPECT_EQ(result.completion->finish_reason(), v1::FINISH_REASON_LENGTH);
        EXPECT_EQ(driver.engine().counts().ring_errors, 0u);
        EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 8u);
        EXPECT_EQ(driver.drafter.num_proposes > 0, draft_length > 0);
      }
    }
  }
}

TEST(EngineTest, WorkersAreFreedWhenRequestsEnd) {
  EngineDriver driver(Options());
  driver.Start();
  driver.Generate(driver.Request(Prompt(9), 20));
  EXPECT_TRUE(driver.drafter.slots.empty());
  EXPECT_TRUE(driver.verifier.slots.empty());
}

TEST(EngineTest, TheDrafterIsSentWhatItLacksAndNothingElse) {
  ToyModel model;
  model.percent_agreement = 100;
  EngineDriver always(Options(3), model);
  always.Start();
  always.Generate(always.Request(Prompt(9), 21));
  // First all of the prompt and the first token; then the last draft token and the bonus.
  ASSERT_GT(always.drafter.caught_up.size(), 2u);
  EXPECT_EQ(always.drafter.caught_up[0], 10);
  for (size_t i = 1; i < always.drafter.caught_up.size(); ++i) {
    EXPECT_EQ(always.drafter.caught_up[i], 2);
  }

  model.percent_agreement = 0;
  EngineDriver never(Options(3), model);
  never.Start();
  never.Generate(never.Request(Prompt(9), 21));
  for (size_t i = 1; i < never.drafter.caught_up.size(); ++i) {
    EXPECT_EQ(never.drafter.caught_up[i], 1);  // the recovered token
  }
}

TEST(EngineTest, StatisticsAreThoseOfWhatWasEmitted) {
  EngineDriver driver(Options(4));
  driver.Start();
  const CallResult result = driver.Generate(driver.Request(Prompt(9), 60));
  const v1::SpeculationStats& stats = result.completion->speculation();
  const auto count = [&](v1::TokenSource source) {
    return static_cast<int>(std::count(result.sources.begin(), result.sources.end(), source));
  };
  EXPECT_EQ(stats.num_accepted_tokens(), count(v1::TOKEN_SOURCE_ACCEPTED));
  EXPECT_EQ(stats.num_plain_rounds(), count(v1::TOKEN_SOURCE_PLAIN));
  EXPECT_EQ(stats.num_drafts(), count(v1::TOKEN_SOURCE_RECOVERED) + count(v1::TOKEN_SOURCE_BONUS));
  EXPECT_EQ(stats.num_tested_tokens(),
            count(v1::TOKEN_SOURCE_ACCEPTED) + count(v1::TOKEN_SOURCE_RECOVERED));
  const auto& accepted = stats.num_accepted_tokens_per_position();
  const auto& tested = stats.num_tested_tokens_per_position();
  EXPECT_EQ(std::accumulate(accepted.begin(), accepted.end(), 0), stats.num_accepted_tokens());
  EXPECT_EQ(std::accumulate(tested.begin(), tested.end(), 0), stats.num_tested_tokens());
  EXPECT_EQ(tested.Get(0), stats.num_drafts());
  for (int i = 1; i < tested.size(); ++i) EXPECT_LE(tested.Get(i), accepted.Get(i - 1));
  EXPECT_NEAR(stats.alpha(), 0.7, 0.2);
  EXPECT_EQ(stats.drafter(), "toy-draft");
  EXPECT_EQ(result.completion->usage().prompt_tokens(), 9);
  EXPECT_EQ(result.completion->usage().completion_tokens(), 60);
  EXPECT_TRUE(result.completion->lossless());
}

// Where cores are few a worker takes the router's as soon as it has a batch.
TEST(EngineTest, WhatAWorkerComputedIsBelievedThoughTheBatchWasNotedLate) {
  double verify_seconds[2];
  for (const bool late : {false, true}) {
    EngineDriver driver(Options(4));
    driver.change_verifier_reply = [](v1::VerifierReply& reply) {
      if (reply.has_verify()) reply.mutable_verify()->set_compute_seconds(0.002);
    };
    driver.sent_late = late ? 0.0015 : 0;
    driver.Start();
    const CallResult result = driver.Generate(driver.Request(Prompt(9), 60));
    const v1::Timings& timings = result.completion->timings();
    verify_seconds[late ? 1 : 0] = timings.verify_seconds();
    EXPECT_GE(timings.transfer_seconds(), 0);
    EXPECT_GE(timings.router_seconds(), 0);
    EXPECT_LE(timings.verify_seconds() + timings.draft_seconds(), timings.decode_seconds());
    // But not longer than since the event that the batch follows from.
    driver.change_verifier_reply = [](v1::VerifierReply& reply) {
      if (reply.has_verify()) reply.mutable_verify()->set_compute_seconds(100);
    };
    const CallResult absurd = driver.Generate(driver.Request(Prompt(9), 60));
    EXPECT_LE(absurd.completion->timings().verify_seconds(),
              absurd.completion->timings().decode_seconds());
  }
  EXPECT_NEAR(verify_seconds[0], verify_seconds[1], 1e-9);
}

TEST(EngineTest, TimesAddUpToTheTimeOfDecoding) {
  EngineDriver driver(Options(4));
  driver.Start();
  const CallResult result = driver.Generate(driver.Request(Prompt(9), 60));
  const v1::Timings& timings = result.completion->timings();
  EXPECT_GT(timings.draft_seconds(), 0);
  EXPECT_GT(timings.verify_seconds(), 0);
  EXPECT_GT(timings.transfer_seconds(), 0);
  EXPECT_GE(timings.router_seconds(), 0);
  EXPECT_NEAR(timings.draft_seconds() + timings.verify_seconds() + timings.transfer_seconds() +
                  timings.router_seconds(),
              timings.decode_seconds(), 1e-9);
}

TEST(EngineTest, ManyRequestsAtOnceSayWhatEachSaysAlone) {
  EngineDriver driver(Options(3));
  driver.Start();
  std::vector<CallId> calls;
  for (int i = 0; i < 20; ++i) {
    GenerationRequest request = driver.Request(Prompt(3 + i * 5, i), 10 + i);
    if (i % 3 == 0) request.draft_length = static_cast<uint32_t>(i % 7);
    calls.push_back(driver.Send(InMode(std::move(request), static_cast<Mode>(i % 3))));
  }
  EXPECT_EQ(driver.engine().num_running(), 8u);
  EXPECT_EQ(driver.fleet.num_waiting(), 12u);
  ASSERT_TRUE(driver.Run());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(driver.calls[calls[i]].ids, Plainly(ToyModel(), Prompt(3 + i * 5, i), 10 + i)) << i;
    EXPECT_TRUE(driver.calls[calls[i]].status->ok());
  }
  EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 8u);
}

TEST(EngineTest, LongPromptsGoInPiecesBesideRunningStreams) {
  EngineOptions options = Options(3);
  options.step_rows = 64;
  EngineDriver driver(options);
  driver.Start();
  const CallId running = driver.Send(driver.Request(Prompt(5), 100));
  for (int i = 0; i < 6; ++i) driver.Step();
  const size_t before = driver.calls[running].ids.size();
  EXPECT_GT(before, 0u);
  const CallId long_one = driver.Send(driver.Request(Prompt(1000, 3), 10));
  while (driver.calls[long_one].ids.empty()) driver.Step();
  EXPECT_GT(driver.calls[running].ids.size(), before + 10);  // was not held up
  ASSERT_TRUE(driver.Run());
  EXPECT_LE(driver.verifier.most_batch_rows, 64u);
  EXPECT_LE(*std::max_element(driver.drafter.caught_up.begin(), driver.drafter.caught_up.end()),
            64);
  EXPECT_EQ(driver.calls[long_one].ids, Plainly(ToyModel(), Prompt(1000, 3), 10));
  EXPECT_EQ(driver.calls[running].ids, Plainly(ToyModel(), Prompt(5), 100));
}

TEST(EngineTest, ContextsAreNeverExceeded) {
  for (uint32_t draft_length = 0; draft_length <= 8; ++draft_length) {
    for (uint32_t draft_context : {12u, 18u, 100u}) {
      EngineDriver driver(Options(draft_length));
      driver.verifier.options.max_context_tokens = 24;
      driver.drafter.options.max_context_tokens = draft_context;
      driver.Start();
      // As the validator cuts it: 24 - 10.
      const CallResult result = driver.Generate(driver.Request(Prompt(10), 14));
      EXPECT_EQ(result.ids, Plainly(ToyModel(), Prompt(10), 14));
      EXPECT_LE(driver.verifier.most_rows, 24u);
      EXPECT_LE(driver.drafter.most_rows, draft_context);
      EXPECT_EQ(result.completion->finish_reason(), v1::FINISH_REASON_LENGTH);
    }
  }
}

TEST(EngineTest, NothingIsDraftedBeyondMaxTokens) {
  for (int max_tokens = 1; max_tokens < 12; ++max_tokens) {
    EngineDriver driver(Options(8));
    driver.Start();
    const CallResult result = driver.Generate(driver.Request(Prompt(4), max_tokens));
    EXPECT_EQ(result.ids, Plainly(ToyModel(), Prompt(4), max_tokens));
    EXPECT_LE(driver.verifier.most_rows, 4u + max_tokens - 1);
  }
}

TEST(EngineTest, AStopEndsTheOutputAtTheSameTokenForEveryDraftLength) {
  ToyModel model;
  model.percent_end = 4;
  for (int prompt = 0; prompt < 10; ++prompt) {
    std::vector<int32_t> want = Plainly(model, Prompt(5, prompt), 200);
    const auto end = std::find(want.begin(), want.end(), kEndOfText);
    ASSERT_NE(end, want.end());
    want.erase(end + 1, want.end());
    for (uint32_t draft_length : {0u, 1u, 4u, 8u}) {
      EngineDriver driver(Options(draft_length), model);
      driver.Start();
      GenerationRequest request = driver.Request(Prompt(5, prompt), 200);
      request.stop_token_ids = {kEndOfText};
      const CallResult result = driver.Generate(std::move(request));
      EXPECT_EQ(result.ids, want);
      EXPECT_EQ(result.completion->stop_token_id(), kEndOfText);
      EXPECT_EQ(result.completion->usage().completion_tokens(), static_cast<int>(want.size()));
      EXPECT_LE(result.completion->speculation().num_accepted_tokens() +
                    result.completion->speculation().num_plain_rounds(),
                static_cast<int>(want.size()));
    }
  }
}

TEST(EngineTest, LogprobsBelongToTheirTokens) {
  EngineDriver driver(Options(4));
  driver.Start();
  GenerationRequest request = driver.Request(Prompt(6), 30);
  request.wants_logprobs = true;
  request.open.mutable_sampling()->set_logprobs(0);
  const CallResult result = driver.Generate(std::move(request));
  ASSERT_EQ(result.logprobs.size(), 30u);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(result.logprobs[i], -(6.0f + static_cast<float>(i)));
}

TEST(EngineTest, CancelingAtEveryStepFreesEverything) {
  for (int at = 0; at < 40; ++at) {
    EngineDriver driver(Options(3));
    driver.Start();
    const CallId gone = driver.Send(InMode(driver.Request(Prompt(40), 30), Mode::kSampled));
    const CallId stays = driver.Send(InMode(driver.Request(Prompt(9), 30), Mode::kSampled));
    ASSERT_TRUE(driver.Run([&](int step) {
      if (step == at) driver.Cancel(gone);
    }));
    EXPECT_EQ(driver.calls[stays].ids, Plainly(ToyModel(), Prompt(9), 30));
    EXPECT_TRUE(driver.drafter.slots.empty());
    EXPECT_TRUE(driver.verifier.slots.empty());
    EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 8u);
  }
}

TEST(EngineTest, ASlotThatIsTakenAgainWhileABatchIsUnderWayIsAnother) {
  EngineOptions options = Options(3);
  options.workers.max_slots = 1;
  for (int at = 0; at < 30; ++at) {
    EngineDriver driver(options);
    driver.Start();
    const CallId first = driver.Send(InMode(driver.Request(Prompt(8), 30), Mode::kSampled));
    const CallId second = driver.Send(InMode(driver.Request(Prompt(8, 2), 30), Mode::kSampled));
    ASSERT_TRUE(driver.Run([&](int step) {
      if (step == at) driver.Cancel(first);
    }));
    EXPECT_EQ(driver.calls[second].ids, Plainly(ToyModel(), Prompt(8, 2), 30));
    EXPECT_EQ(driver.engine().workers().ring(kDrafterPeer).num_free(), 1u);
  }
}

TEST(EngineTest, AFullQueueRefusesWithAHint) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  options.max_queue = 2;
  EngineDriver driver(options);
  driver.Start();
  std::vector<CallId> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(driver.Send(driver.Request(Prompt(4, i), 5)));
  const CallResult& refused = driver.calls[calls[3]];
  ASSERT_TRUE(refused.status.has_value());
  EXPECT_EQ(refused.status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(refused.status->message()).find("2 requests"), std::string::npos);
  EXPECT_GT(refused.retry_milliseconds, 0);
  ASSERT_TRUE(driver.Run());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(driver.calls[calls[i]].ids, Plainly(ToyModel(), Prompt(4, i), 5));
  }
}

TEST(EngineTest, MoreRequestsThanSlotsAreTakenInTheOrderInWhichTheyCame) {
  constexpr size_t kRequests = 12;
  constexpr size_t kLeaves = 6;  // while it waits
  EngineOptions options = Options();
  options.workers.max_slots = 3;
  EngineDriver driver(options);
  driver.Start();
  std::vector<CallId> calls;
  const auto prompt = [](size_t i) { return Prompt(3 + 17 * (i % 4), static_cast<int32_t>(i)); };
  const auto max_tokens = [](size_t i) { return 6 + 9 * static_cast<int>(i % 3); };
  for (size_t i = 0; i < kRequests; ++i) {
    // Long and short ones by turns: neither has any advantage.
    GenerationRequest request = driver.Request(prompt(i), max_tokens(i));
    request.open.mutable_sampling()->set_seed(i);
    calls.push_back(driver.Send(std::move(request)));
  }
  EXPECT_EQ(driver.engine().num_running(), 3u);
  EXPECT_EQ(driver.fleet.num_waiting(), kRequests - 3);
  driver.Cancel(calls[kLeaves]);
  EXPECT_EQ(driver.fleet.num_waiting(), kRequests - 4);

  std::vector<uint64_t> taken;  // as the verifier comes to know them
  ASSERT_TRUE(driver.Run([&](int /*step*/) {
    EXPECT_LE(driver.verifier.slots.size(), 3u);
    for (const auto& [id, slot] : driver.verifier.slots) {
      if (!slot.open.has_value()) continue;
      const uint64_t request = slot.open->sampling().seed();
      if (std::find(taken.begin(), taken.end(), request) == taken.end()) taken.push_back(request);
    }
    // Nobody waits who came before one that was taken.
    for (const uint64_t request : taken) {
      EXPECT_LE(driver.fleet.num_waiting(), kRequests - 1 - request);
    }
  }));
  std::vector<uint64_t> expected(kRequests);
  std::iota(expected.begin(), expected.end(), uint64_t{0});
  expected.erase(expected.begin() + kLeaves);
  EXPECT_EQ(taken, expected);
  for (size_t i = 0; i < kRequests; ++i) {
    if (i == kLeaves) continue;
    const CallResult& result = driver.calls[calls[i]];
    ASSERT_TRUE(result.status.has_value() && result.status->ok()) << i;
    EXPECT_EQ(result.ids, Plainly(ToyModel(), prompt(i), static_cast<size_t>(max_tokens(i)))) << i;
  }
}

TEST(EngineTest, TheEndOfACallNamesTheSlotThatItHadLast) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  EngineDriver driver(options);
  driver.Start();
  const CallId first = driver.Send(driver.Request(Prompt(4), 5));
  const CallId queued = driver.Send(driver.Request(Prompt(5), 5));
  const CallId last = driver.Send(driver.Request(Prompt(6), 500));
  EXPECT_FALSE(driver.fleet.OnCancel(queued, driver.now).has_value());
  driver.Execute();
  driver.RunUntilEnd(first);
  ASSERT_TRUE(driver.calls[first].slot.has_value());
  EXPECT_EQ(driver.calls[first].slot->slot, 0u);
  EXPECT_EQ(driver.calls[first].slot->epoch, 1u);
  while (driver.calls[last].ids.empty()) ASSERT_TRUE(driver.Step());
  const std::optional<SlotLife> canceled = driver.fleet.OnCancel(last, driver.now);
  driver.Execute();
  ASSERT_TRUE(canceled.has_value());
  EXPECT_EQ(canceled->slot, 0u);
  EXPECT_EQ(canceled->epoch, 2u);
  EXPECT_TRUE(driver.fleet.idle());
}

TEST(EngineTest, AnIdThatRunsAlreadyIsRefusedAndFreeAfterwards) {
  EngineDriver driver(Options());
  driver.Start();
  GenerationRequest request = driver.Request(Prompt(4), 5);
  request.request_id = "twin";
  driver.Send(request);
  const CallId second = driver.Send(request);
  EXPECT_EQ(driver.calls[second].status->code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(driver.Run());
  const CallId third = driver.Send(request);
  ASSERT_TRUE(driver.Run());
  EXPECT_TRUE(driver.calls[third].status->ok());
}

TEST(EngineTest, DrainingRefusesTheNewAndFinishesTheRunning) {
  EngineOptions options = Options();
  options.workers.max_slots = 1;
  EngineDriver driver(options);
  driver.Start();
  const CallId running = driver.Send(driver.Request(Prompt(4), 20));
  const CallId queued = driver.Send(driver.Request(Prompt(5), 20));
  driver.fleet.Drain();
  const CallId refused = driver.Send(driver.Request(Prompt(6), 20));
  EXPECT_EQ(driver.calls[refused].status->code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(driver.Run());
  EXPECT_TRUE(driver.calls[running].status->ok());
  EXPECT_TRUE(driver.calls[queued].status->ok());
}

TEST(EngineTest, StoppingEndsEverythingWithTheCountOfWhatWasEmitted) {
  EngineDriver driver(Options());
  driver.Start();
  const CallId running = driver.Send(driver.Request(Prompt(4), 1000));
  for (int i = 0; i < 10; ++i) driver.Step();
  driver.fleet.Stop(driver.now);
  driver.Execute();
  const CallResult& result = driver.calls[running];
  EXPECT_EQ(result.status->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(result.emitted_tokens, static_cast<int>(result.ids.size()));
  EXPECT_GT(result.emitted_tokens, 0);
  EXPECT_TRUE(driver.fleet.idle());
}

}  // namespace
}  // namespace tandem::engine_test
