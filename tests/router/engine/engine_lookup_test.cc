// The engine with drafts that it finds itself: in the text of a request, and in its prediction.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/router/engine_driver.h"

namespace tandem::engine_lookup_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Plainly;
using testing::Sampled;

const std::vector<int32_t> kPrompt = {5, 9, 2, 40, 7};

EngineOptions FixedLength(uint32_t draft_length) {
  EngineOptions options;
  options.draft_length = draft_length;
  return options;
}

// A request that may use nothing but lookups.
GenerationRequest LookingUp(GenerationRequest request, std::vector<int32_t> prediction = {}) {
  request.drafters = DrafterSet(Drafter::kSuffix);
  request.drafters.Add(Drafter::kNgram);
  request.drafters.Add(Drafter::kPrediction);
  request.prediction = std::move(prediction);
  return request;
}

TEST(EngineLookupTest, ALookupRoundTakesOneRoundTripAndNoDrafter) {
  EngineDriver driver(FixedLength(7));
  driver.drafter_alive = false;
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 64);
  for (const bool sampled : {false, true}) {
    const int before = driver.verifier.num_verifies;
    GenerationRequest request = LookingUp(driver.Request(kPrompt, 64), answer);
    const CallResult result = driver.Generate(sampled ? Sampled(request) : request);
    EXPECT_EQ(result.ids, answer);
    // The first token comes with the prompt. Each round of the rest commits eight.
    EXPECT_EQ(driver.verifier.num_verifies - before, 1 + 8) << "sampled: " << sampled;
    const v1::SpeculationStats& stats = result.completion->speculation();
    EXPECT_EQ(stats.drafter(), "prediction");
    EXPECT_EQ(stats.num_accepted_tokens(), stats.num_draft_tokens());
    EXPECT_EQ(result.completion->usage().accepted_prediction_tokens(), stats.num_draft_tokens());
    EXPECT_EQ(result.completion->usage().rejected_prediction_tokens(), 0);
  }
}

TEST(EngineLookupTest, AWrongPredictionChangesNothingAndIsCounted) {
  EngineDriver driver(FixedLength(4));
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 40);
  std::vector<int32_t> prediction = answer;
  for (size_t i = 5; i < prediction.size(); i += 9) prediction[i] = (prediction[i] + 1) % 64;
  const CallResult result = driver.Generate(LookingUp(driver.Request(kPrompt, 40), prediction));
  EXPECT_EQ(result.ids, answer);
  EXPECT_GT(result.completion->usage().accepted_prediction_tokens(), 10);
  EXPECT_GT(result.completion->usage().rejected_prediction_tokens(), 0);
}

TEST(EngineLookupTest, TextThatRepeatsIsFoundInThePrompt) {
  EngineDriver driver(FixedLength(5));
  driver.drafter_alive = false;
  driver.Start();
  // The toy's next token depends on the whole prefix, so most of what is found is rejected.
  std::vector<int32_t> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(i % 4);
  GenerationRequest request = driver.Request(prompt, 60);
  request.drafters = DrafterSet(Drafter::kSuffix);
  const CallResult result = driver.Generate(std::move(request));
  EXPECT_EQ(result.ids, Plainly(prompt, 60));
  EXPECT_GT(result.completion->speculation().num_drafts(), 0);
  EXPECT_EQ(result.completion->speculation().drafters(0).name(), "suffix");
}

TEST(EngineLookupTest, LookupsAndTheDraftModelServeOneBatch) {
  EngineDriver driver(FixedLength(3));
  driver.Start();
  std::vector<CallId> calls;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt = kPrompt;
    prompt.push_back(i);
    GenerationRequest request = driver.Request(prompt, 30);
    if (i % 2 == 0) request = LookingUp(std::move(request), Plainly(prompt, 30));
    calls.push_back(driver.Send(i % 3 == 0 ? Sampled(std::move(request)) : std::move(request)));
    prompts.push_back(std::move(prompt));
  }
  ASSERT_TRUE(driver.Run());
  for (size_t i = 0; i < calls.size(); ++i) {
    const CallResult& result = driver.calls[calls[i]];
    EXPECT_EQ(result.ids, Plainly(prompts[i], 30));
    ASSERT_EQ(result.completion->speculation().drafters_size(), 1);
    EXPECT_EQ(result.completion->speculation().drafters(0).name(),
              i % 2 == 0 ? "prediction" : "model");
  }
}

TEST(EngineLookupTest, LookupsGoOnWhileTheDrafterIsGone) {
  EngineDriver driver(FixedLength(3));
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 60);
  GenerationRequest request = LookingUp(driver.Request(kPrompt, 60), answer);
  request.drafters = DefaultDrafters();
  const CallId call = driver.Send(std::move(request));
  driver.StepUntil([&] { return driver.calls[call].ids.size() >= 6; });
  driver.Kill(Worker::kDrafter);
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, answer);
  const v1::SpeculationStats& stats = driver.calls[call].completion->speculation();
  ASSERT_EQ(stats.drafters_size(), 1);
  EXPECT_EQ(stats.drafters(0).name(), "prediction");
  EXPECT_GE(stats.num_accepted_tokens(), 40);
}

// A server that has served many requests knows its draft model well, and no prediction yet.
CallResult PredictBesideAGoodModel(const std::vector<int32_t>& prediction, size_t num_tokens) {
  EngineDriver driver(FixedLength(4), {.percent_agreement = 95});
  driver.Start();
  for (int32_t i = 0; i < 8; ++i) (void)driver.Generate(driver.Request({i, 3, 4}, 60));
  GenerationRequest request =
      LookingUp(driver.Request(kPrompt, static_cast<int>(num_tokens)), prediction);
  request.drafters = DefaultDrafters();
  CallResult result = driver.Generate(std::move(request));
  EXPECT_EQ(result.ids, Plainly(kPrompt, num_tokens));
  return result;
}

TEST(EngineLookupTest, APredictionIsTriedBesideADraftModelThatIsNearlyAlwaysRight) {
  const CallResult result = PredictBesideAGoodModel(Plainly(kPrompt, 120), 120);
  EXPECT_GT(result.completion->usage().accepted_prediction_tokens(), 80);
}

TEST(EngineLookupTest, AModelIsTriedWhereSomethingBetterIsFoundAtEveryPlace) {
  EngineDriver driver({}, {.percent_agreement = 0});
  driver.Start();
  for (int32_t i = 0; i < 8; ++i) (void)driver.Generate(driver.Request({i, 3, 4}, 100));
  const std::vector<int32_t> answer = Plainly(kPrompt, 600);
  // Half of the prediction's drafts are accepted, so that the model never lacks many rows.
  std::vector<int32_t> prediction = answer;
  for (size_t i = 4; i < prediction.size(); i += 5) prediction[i] = (prediction[i] + 1) % 64;
  GenerationRequest request = LookingUp(driver.Request(kPrompt, 600), prediction);
  request.drafters = DefaultDrafters();
  const CallResult result = driver.Generate(std::move(request));
  EXPECT_EQ(result.ids, answer);
  int num_model = 0;
  for (const v1::DrafterStats& stats : result.completion->speculation().drafters()) {
    if (stats.name() == "model") num_model = static_cast<int>(stats.num_drafts());
  }
  EXPECT_GE(num_model, 1) << "it could have become right";
  EXPECT_LE(num_model, 12);
}

// A wrong prediction is tried now and then, and costs little.
TEST(EngineLookupTest, AWrongPredictionHardlyTakesRoundsFromAGoodDraftModel) {
  std::vector<int32_t> prediction = Plainly(kPrompt, 400);
  for (size_t i = 0; i < prediction.size(); i += 3) prediction[i] = (prediction[i] + 1) % 64;
  const CallResult result = PredictBesideAGoodModel(prediction, 400);
  for (const v1::DrafterStats& stats : result.completion->speculation().drafters()) {
    if (stats.name() != "prediction") continue;
    EXPECT_LT(stats.num_drafts(), 30);
  }
}

TEST(EngineLookupTest, ABatchRespectsStepRows) {
  EngineOptions options = FixedLength(8);
  options.step_rows = 20;
  EngineDriver driver(options);
  driver.Start();
  std::vector<CallId> calls;
  for (int32_t i = 0; i < 6; ++i) {
    const std::vector<int32_t> prompt = {i, 9, 2};
    calls.push_back(driver.Send(LookingUp(driver.Request(prompt, 40), Plainly(prompt, 40))));
  }
  size_t most = 0;
  ASSERT_TRUE(driver.Run([&](int) { most = std::max(most, driver.verifier.last_batch_rows); }));
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(driver.calls[calls[i]].ids, Plainly({i, 9, 2}, 40));
  EXPECT_LE(most, 20u + 20 / 4) << "prompts may take a quarter in any case";
  EXPECT_GT(most, 15u);
}

TEST(EngineLookupTest, AVerifierThatDiesBetweenDraftAndVerdictLosesNothing) {
  for (int after = 1; after < 12; ++after) {
    EngineDriver driver(FixedLength(4));
    driver.Start();
    const std::vector<int32_t> answer = Plainly(kPrompt, 40);
    GenerationRequest request = LookingUp(driver.Request(kPrompt, 40), answer);
    const CallId call = driver.Send(after % 2 == 0 ? Sampled(std::move(request)) : request);
    for (int step = 0; step < after; ++step) driver.Step();
    driver.Kill(Worker::kVerifier);
    driver.Revive(Worker::kVerifier);
    ASSERT_TRUE(driver.Run());
    EXPECT_EQ(driver.calls[call].ids, answer) << after;
  }
}

EngineOptions WithCorpus(uint32_t draft_length) {
  EngineOptions options = FixedLength(draft_length);
  options.has_corpus = true;
  return options;
}

GenerationRequest Retrieving(GenerationRequest request) {
  request.drafters = DrafterSet(Drafter::kRetrieval);
  return request;
}

TEST(EngineLookupTest, WhatACorpusHoldsIsRetrieved) {
  EngineDriver driver(WithCorpus(7));
  driver.drafter_alive = false;
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 64);
  driver.corpus.documents = {{1, 2, 3}, answer};
  for (const bool sampled : {false, true}) {
    const int before = driver.verifier.num_verifies;
    GenerationRequest request = Retrieving(driver.Request(kPrompt, 64));
    const CallResult result = driver.Generate(sampled ? Sampled(request) : request);
    EXPECT_EQ(result.ids, answer);
    EXPECT_LT(driver.verifier.num_verifies - before, 20) << "sampled: " << sampled;
    EXPECT_EQ(result.completion->speculation().drafter(), "retrieval");
  }
}

TEST(EngineLookupTest, ALateAnswerServesTheRoundsAfterIt) {
  EngineDriver driver(WithCorpus(4));
  driver.drafter_alive = false;
  driver.answers_searches = false;
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 64);
  driver.corpus.documents = {answer};
  const int before = driver.verifier.num_verifies;
  const CallId call = driver.Send(Retrieving(driver.Request(kPrompt, 64)));
  int steps = 0;
  while (driver.Step()) {
    // Each answer comes two messages late.
    if (++steps % 3 == 0) driver.AnswerSearches();
  }
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, answer);
  EXPECT_LT(driver.verifier.num_verifies - before, 40);
  EXPECT_GT(driver.calls[call].completion->speculation().num_accepted_tokens(), 20);
}

TEST(EngineLookupTest, AnswersThatNeverComeHoldUpNothing) {
  EngineDriver driver(WithCorpus(4));
  driver.answers_searches = false;
  driver.Start();
  driver.corpus.documents = {Plainly(kPrompt, 40)};
  const CallResult result = driver.Generate(Retrieving(driver.Request(kPrompt, 40)));
  EXPECT_EQ(result.ids, Plainly(kPrompt, 40));
  EXPECT_EQ(result.completion->speculation().num_drafts(), 0);
  EXPECT_EQ(driver.searches.size(), 1u) << "one search of a cohort is under way";
}

TEST(EngineLookupTest, AVerifierThatDiesDuringASearchLosesNothing) {
  for (int after = 1; after < 12; ++after) {
    EngineDriver driver(WithCorpus(4));
    driver.answers_searches = false;
    driver.Start();
    const std::vector<int32_t> answer = Plainly(kPrompt, 40);
    driver.corpus.documents = {answer};
    const CallId call = driver.Send(Retrieving(driver.Request(kPrompt, 40)));
    for (int step = 0; step < after; ++step) {
      driver.Step();
      if (step + 1 < after) driver.AnswerSearches();
    }
    driver.Kill(Worker::kVerifier);
    driver.Revive(Worker::kVerifier);
    driver.AnswerSearches();
    driver.answers_searches = true;
    ASSERT_TRUE(driver.Run());
    EXPECT_EQ(driver.calls[call].ids, answer) << after;
  }
}

TEST(EngineLookupTest, ACorpusThatIsAlwaysWrongIsHardlySearched) {
  EngineDriver driver(WithCorpus(4));
  driver.Start();
  std::vector<int32_t> wrong;
  for (int32_t a = 0; a < 64; ++a) {
    for (int32_t b = 0; b < 64; ++b) wrong.insert(wrong.end(), {a, b, 63});
  }
  driver.corpus.documents = {wrong};
  const CallResult result = driver.Generate(Retrieving(driver.Request(kPrompt, 400)));
  EXPECT_EQ(result.ids, Plainly(kPrompt, 400));
  EXPECT_LT(result.completion->speculation().num_drafts(), 40);
  EXPECT_LT(driver.num_searches, 60);
}

TEST(EngineLookupTest, ALengthOfZeroUsesNoLookup) {
  EngineDriver driver{EngineOptions()};
  driver.Start();
  GenerationRequest request = LookingUp(driver.Request(kPrompt, 20), Plainly(kPrompt, 20));
  request.draft_length = 0;
  const CallResult result = driver.Generate(std::move(request));
  EXPECT_EQ(result.ids, Plainly(kPrompt, 20));
  EXPECT_EQ(result.completion->speculation().num_drafts(), 0);
}

TEST(EngineLookupTest, TheControllerLearnsThatLookupsPayWithoutADrafter) {
  EngineOptions options;
  EngineDriver driver(options);
  driver.drafter_alive = false;
  driver.verifier.row_seconds = 0.0001;
  driver.verifier.compute_seconds = 0.01;
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 200);
  const CallResult result = driver.Generate(LookingUp(driver.Request(kPrompt, 200), answer));
  EXPECT_EQ(result.ids, answer);
  // A row costs a hundredth of a pass, so long drafts pay.
  EXPECT_LT(driver.verifier.num_verifies, 60);
}

TEST(EngineLookupTest, LookupsThatAreAlwaysWrongEnd) {
  EngineOptions options;
  EngineDriver driver(options);
  driver.drafter_alive = false;
  driver.verifier.row_seconds = 0.002;
  driver.verifier.compute_seconds = 0.002;
  driver.Start();
  std::vector<int32_t> prediction = Plainly(kPrompt, 400);
  for (int32_t& id : prediction) id = (id + 1) % 64;
  std::vector<int32_t> prompt = kPrompt;
  const CallResult result = driver.Generate(LookingUp(driver.Request(prompt, 400), prediction));
  EXPECT_EQ(result.ids, Plainly(prompt, 400));
  EXPECT_LT(result.completion->speculation().num_draft_tokens(), 60);
}

}  // namespace
}  // namespace tandem::engine_lookup_test
