// Log-probabilities of prompts (SamplingParams.prompt_logprobs): each prompt token has them once,
// whatever happens to the workers.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "tests/router/engine_driver.h"

namespace tandem::testing {
namespace {

std::vector<int32_t> PromptOf(int32_t length) {
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  std::iota(prompt.begin(), prompt.end(), 0);
  for (int32_t& id : prompt) id = (id * 7 + length) % 60;
  return prompt;
}

GenerationRequest Scored(std::vector<int32_t> prompt, int max_tokens, int num_top = 2) {
  GenerationRequest request = GreedyRequest(std::move(prompt), max_tokens);
  request.open.set_prompt_logprobs(num_top);
  if (max_tokens == 0) request.draft_length = 0;
  return request;
}

// The toy verifier says how many tokens precede the token.
std::vector<float> ScoresOf(int32_t length) {
  std::vector<float> scores;
  for (int32_t i = 1; i < length; ++i) scores.push_back(static_cast<float>(-i));
  return scores;
}

EngineOptions SmallSteps(uint32_t step_rows = 48) {
  EngineOptions options;
  options.step_rows = step_rows;
  return options;
}

TEST(EngineScoresTest, EachPromptTokenHasItsLogprobOnceBeforeTheOutput) {
  for (const int32_t length : {1, 2, 32, 64, 65, 66, 200}) {
    EngineDriver driver(SmallSteps(256));
    driver.Start();
    const CallResult result = driver.Generate(Scored(PromptOf(length), 9));
    EXPECT_EQ(result.prompt_scores, ScoresOf(length)) << length;
    EXPECT_EQ(result.ids, Plainly(PromptOf(length), 9)) << length;
    EXPECT_EQ(result.prompt_starts, std::vector<int32_t>{PromptOf(length).front()}) << length;
    EXPECT_LE(driver.verifier.most_batch_rows, size_t{kMaxScoredRows}) << length;
  }
}

TEST(EngineScoresTest, WithoutOutputNoTokenIsDrawn) {
  for (const int32_t length : {1, 2, 3, 64, 65, 66, 130}) {
    EngineDriver driver;
    driver.Start();
    const CallResult result = driver.Generate(Scored(PromptOf(length), 0));
    EXPECT_EQ(result.prompt_scores, ScoresOf(length)) << length;
    ASSERT_TRUE(result.completion.has_value() && result.status->ok()) << length;
    EXPECT_EQ(result.completion->finish_reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(result.completion->usage().completion_tokens(), 0);
    EXPECT_EQ(result.completion->usage().prompt_tokens(), length);
    EXPECT_GE(result.completion->timings().prefill_seconds(), 0);
    EXPECT_TRUE(result.ids.empty() && result.text.empty());
    EXPECT_EQ(driver.drafter.num_proposes, 0) << length;
    EXPECT_TRUE(driver.fleet.idle());
  }
}

TEST(EngineScoresTest, OtherRequestsAreNotScoredAndGoInLargeSteps) {
  EngineDriver driver(SmallSteps(256));
  driver.Start();
  const CallResult result = driver.Generate(driver.Request(PromptOf(200), 3));
  EXPECT_TRUE(result.prompt_scores.empty() && result.prompt_starts.empty());
  EXPECT_EQ(driver.verifier.num_scored, 0u);
  EXPECT_EQ(driver.verifier.most_batch_rows, 200u);
}

TEST(EngineScoresTest, AVerifierThatDiesAtAnyStepLosesNoScoreAndRepeatsNone) {
  for (int step = 0; step < 60; step += 3) {
    EngineDriver driver(SmallSteps());
    driver.Start();
    const CallId with_output = driver.Send(Scored(PromptOf(150), 12));
    const CallId without = driver.Send(Scored(PromptOf(131), 0));
    driver.Run([&](int at) {
      if (at != step) return;
      driver.Kill(Worker::kVerifier);
      driver.Revive(Worker::kVerifier);
    });
    EXPECT_EQ(driver.calls[with_output].prompt_scores, ScoresOf(150)) << step;
    EXPECT_EQ(driver.calls[with_output].ids, Plainly(PromptOf(150), 12)) << step;
    EXPECT_EQ(driver.calls[without].prompt_scores, ScoresOf(131)) << step;
    EXPECT_TRUE(driver.calls[without].completion.has_value()) << step;
  }
}

TEST(EngineScoresTest, RowsThatWereScoredBeforeAreComputedWithoutScores) {
  EngineDriver driver(SmallSteps());
  driver.Start();
  const CallId call = driver.Send(Scored(PromptOf(200), 4));
  ASSERT_TRUE(driver.StepUntil([&] { return driver.calls[call].prompt_scores.size() > 90; }));
  const size_t before = driver.verifier.num_scored;
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.Run();
  EXPECT_EQ(driver.calls[call].prompt_scores, ScoresOf(200));
  // The batch under way was lost.
  EXPECT_LE(driver.verifier.num_scored, 199 + before - 90);
}

TEST(EngineScoresTest, ARequestThatGivesItsPagesUpHasItsScoresOnce) {
  EngineOptions options = SmallSteps();
  EngineDriver driver(options);
  driver.verifier.options.num_pages = 60;  // rows of a prompt and a half
  driver.Start();
  const CallId first = driver.Send(driver.Request(PromptOf(100), 60));
  const CallId second = driver.Send(Scored(PromptOf(120), 20));
  driver.Run();
  EXPECT_EQ(driver.calls[first].ids, Plainly(PromptOf(100), 60));
  EXPECT_EQ(driver.calls[second].prompt_scores, ScoresOf(120));
  EXPECT_EQ(driver.calls[second].ids, Plainly(PromptOf(120), 20));
}

TEST(EngineScoresTest, AVerifierThatLosesRowsOrSaysThatItHoldsMoreIsResynchronized) {
  for (int step = 2; step < 12; ++step) {
    EngineDriver driver(SmallSteps());
    driver.Start();
    const CallId call = driver.Send(Scored(PromptOf(150), 5));
    driver.Run([&](int at) {
      if (at != step || driver.verifier.slots.empty()) return;
      ToySlot& slot = driver.verifier.slots.begin()->second;
      slot.tokens.resize(slot.tokens.size() / 2);
    });
    EXPECT_EQ(driver.calls[call].prompt_scores, ScoresOf(150)) << step;
    EXPECT_EQ(driver.calls[call].ids, Plainly(PromptOf(150), 5)) << step;
  }
}

TEST(EngineScoresTest, AReplayOfTheAuditAsksForNoScores) {
  EngineOptions options;
  options.audit_fraction = 1;
  EngineDriver driver(options);
  driver.Start();
  const CallResult result = driver.Generate(Scored(PromptOf(90), 6));
  driver.Run();
  EXPECT_EQ(result.prompt_scores, ScoresOf(90));
  EXPECT_EQ(driver.verifier.num_scored, 89u);
  // A request without output has nothing to be replayed.
  driver.Generate(Scored(PromptOf(40), 0));
  driver.Run();
  EXPECT_TRUE(driver.fleet.idle());
}

TEST(EngineScoresTest, AWrongScoreDropsTheVerifierAndTheRightOnesFollow) {
  using Change = void (*)(v1::VerifyResult*);
  const Change changes[] = {
      [](v1::VerifyResult* result) { result->mutable_prompt_logprobs()->RemoveLast(); },
      [](v1::VerifyResult* result) { result->add_prompt_logprobs(); },
      [](v1::VerifyResult* result) {
        result->mutable_prompt_logprobs(0)->mutable_top(0)->set_token_id(-1);
      },
      [](v1::VerifyResult* result) { result->mutable_prompt_logprobs(0)->clear_top(); },
  };
  for (const Change change : changes) {
    EngineDriver driver(SmallSteps());
    driver.Start();
    bool changed = false;
    driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
      if (changed || reply.verify().results_size() == 0) return;
      changed = true;
      change(reply.mutable_verify()->mutable_results(0));
    };
    const CallResult result = driver.Generate(Scored(PromptOf(100), 3));
    EXPECT_TRUE(changed);
    EXPECT_EQ(result.prompt_scores, ScoresOf(100));
    EXPECT_EQ(result.ids, Plainly(PromptOf(100), 3));
  }
}

}  // namespace
}  // namespace tandem::testing
