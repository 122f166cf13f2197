// The engine with a drafter that lives in the verifier.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/engine_driver.h"

namespace tandem::self_round_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Plainly;
using testing::Sampled;

const std::vector<int32_t> kPrompt = {5, 9, 2, 40, 7};

GenerationRequest WithHeads(GenerationRequest request) {
  request.drafters = DrafterSet(Drafter::kMedusa);
  return request;
}

EngineOptions FixedLength(uint32_t draft_length) {
  EngineOptions options;
  options.draft_length = draft_length;
  return options;
}

TEST(SelfRoundTest, ProposalsAreJudgedInTheNextRound) {
  EngineDriver driver(FixedLength(3), {.percent_agreement = 100});
  driver.drafter_alive = false;
  driver.verifier.options.self_drafter = "medusa";
  driver.Start();
  const std::vector<int32_t> answer = Plainly(kPrompt, 41);
  for (const bool sampled : {false, true}) {
    const int before = driver.verifier.num_verifies;
    const GenerationRequest request = WithHeads(driver.Request(kPrompt, 41));
    const CallResult result = driver.Generate(sampled ? Sampled(request) : request);
    EXPECT_EQ(result.ids, answer);
    // The first token comes with the prompt and a proposal. Each round of the rest commits four.
    EXPECT_EQ(driver.verifier.num_verifies - before, 1 + 10) << "sampled: " << sampled;
    const v1::SpeculationStats& stats = result.completion->speculation();
    EXPECT_EQ(stats.drafter(), "medusa");
    EXPECT_EQ(stats.num_draft_tokens(), 30);
    EXPECT_EQ(stats.num_accepted_tokens(), 30);
  }
}

TEST(SelfRoundTest, WrongProposalsChangeNothing) {
  for (const int agreement : {0, 50, 90}) {
    EngineDriver driver(FixedLength(4), {.percent_agreement = agreement});
    driver.verifier.options.self_drafter = "medusa";
    driver.Start();
    const CallResult result = driver.Generate(WithHeads(driver.Request(kPrompt, 60)));
    EXPECT_EQ(result.ids, Plainly(kPrompt, 60));
    EXPECT_GT(result.completion->speculation().num_draft_tokens(), 0);
  }
}

TEST(SelfRoundTest, AVerifierIsAskedOnlyForWhatItHas) {
  for (const std::string& has : {std::string(), std::string("blockwise")}) {
    EngineDriver driver(FixedLength(4));
    driver.drafter_alive = false;
    driver.verifier.options.self_drafter = has;
    driver.Start();
    EXPECT_EQ(driver.Generate(WithHeads(driver.Request(kPrompt, 20))).ids, Plainly(kPrompt, 20));
    EXPECT_EQ(driver.verifier.num_proposals, 0) << has;
  }
}

TEST(SelfRoundTest, NobodyAsksWithoutDrafts) {
  EngineDriver driver(FixedLength(0));
  driver.verifier.options.self_drafter = "medusa";
  driver.Start();
  EXPECT_EQ(driver.Generate(WithHeads(driver.Request(kPrompt, 20))).ids, Plainly(kPrompt, 20));
  EXPECT_EQ(driver.verifier.num_proposals, 0);
}

TEST(SelfRoundTest, AFixedLengthOfTheOnlyDrafterIsAskedForAlways) {
  EngineDriver driver(FixedLength(4), {.percent_agreement = 0});
  driver.drafter_alive = false;
  driver.verifier.options.self_drafter = "medusa";
  driver.Start();
  for (const bool alone : {true, false}) {
    GenerationRequest request = WithHeads(driver.Request(kPrompt, 400));
    if (!alone) request.drafters.Add(Drafter::kPrediction);
    driver.verifier.num_proposals = 0;
    (void)driver.Generate(request);
    if (alone) {
      EXPECT_GT(driver.verifier.num_proposals, 390);
    } else {
      EXPECT_LT(driver.verifier.num_proposals, 40);
    }
  }
}

TEST(SelfRoundTest, ProposalsThatGainNothingAreAskedForRarely) {
  EngineDriver driver({}, {.percent_agreement = 0});
  driver.drafter_alive = false;
  driver.verifier.options.self_drafter = "medusa";
  driver.Start();
  (void)driver.Generate(WithHeads(driver.Request(kPrompt, 400)));
  driver.verifier.num_proposals = 0;
  (void)driver.Generate(WithHeads(driver.Request(kPrompt, 400)));
  EXPECT_GT(driver.verifier.num_proposals, 2);
  EXPECT_LT(driver.verifier.num_proposals, 40);
}

// Expects that a request asks in few of its rounds, or in all of them.
void ExpectQuestions(bool rarely, const GenerationRequest& request, EngineDriver* driver) {
  driver->verifier.num_proposals = 0;
  const int before = driver->verifier.num_verifies;
  (void)driver->Generate(request);
  const int num_rounds = driver->verifier.num_verifies - before;
  if (rarely) {
    EXPECT_LT(driver->verifier.num_proposals, num_rounds / 3);
  } else {
    EXPECT_GE(driver->verifier.num_proposals, num_rounds - 2);
  }
}

TEST(SelfRoundTest, ProposalsThatAnotherDraftReplacesAreAskedForRarely) {
  constexpr int kTokens = 400;
  for (const bool is_predicted : {false, true}) {
    EngineDriver driver({}, {.percent_agreement = 100});
    driver.drafter_alive = false;
    driver.verifier.options.self_drafter = "medusa";
    driver.verifier.propose_seconds = driver.verifier.compute_seconds / 4;
    driver.Start();
    GenerationRequest request = WithHeads(driver.Request(kPrompt, kTokens));
    // The prediction is as good as the heads, and it takes no time.
    if (is_predicted) {
      request.drafters.Add(Drafter::kPrediction);
      request.prediction = Plainly(kPrompt, kTokens);
    }
    for (int i = 0; i < 20; ++i) (void)driver.Generate(request);
    ExpectQuestions(/*rarely=*/is_predicted, request, &driver);
  }
}

TEST(SelfRoundTest, ProposalsThatGainLessThanTheDraftModelAreAskedForRarely) {
  // Both drafters are always right, and a proposal gives more than it costs. It is not worth asking
  // for beside a draft model whose passes are much cheaper.
  for (const bool has_model : {false, true}) {
    EngineOptions options;
    options.workers.max_draft_length = 4;
    EngineDriver driver(options, {.percent_agreement = 100});
    driver.drafter_alive = has_model;
    driver.drafter.compute_seconds = driver.verifier.compute_seconds / 20;
    driver.verifier.options.self_drafter = "medusa";
    driver.verifier.propose_seconds = 1.5 * driver.verifier.compute_seconds;
    driver.Start();
    GenerationRequest request = WithHeads(driver.Request(kPrompt, 400));
    // Its acceptance is known from requests that use it alone.
    request.drafters = DrafterSet(Drafter::kModel);
    for (int i = 0; i < 5; ++i) (void)driver.Generate(request);
    request.drafters.Add(Drafter::kMedusa);
    for (int i = 0; i < 20; ++i) (void)driver.Generate(request);
    ExpectQuestions(/*rarely=*/has_model, request, &driver);
  }
}

TEST(SelfRoundTest, AVerifierThatComesBackWithoutHeadsIsNotAsked) {
  EngineDriver driver(FixedLength(2), {.percent_agreement = 100});
  driver.drafter_alive = false;
  driver.verifier.options.self_drafter = "medusa";
  driver.Start();
  const CallId call = driver.Send(WithHeads(driver.Request(kPrompt, 60)));
  for (int i = 0; i < 6; ++i) driver.Step();
  EXPECT_GT(driver.verifier.num_proposals, 0);
  driver.Kill(Worker::kVerifier);
  driver.verifier.num_proposals = 0;
  driver.verifier.options.self_drafter = "";
  driver.Revive(Worker::kVerifier);
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].ids, Plainly(kPrompt, 60));
  EXPECT_EQ(driver.verifier.num_proposals, 0);
}

}  // namespace
}  // namespace tandem::self_round_test
