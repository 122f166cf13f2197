#include "services/router/client_calls/choices.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

GenerationRequest RequestOf(uint32_t num_choices, uint64_t seed = 7) {
  GenerationRequest request;
  request.request_id = "mine";
  request.prompt_token_ids = {1, 2, 3};
  request.num_choices = num_choices;
  request.open.mutable_sampling()->set_seed(seed);
  return request;
}

// Begins the other choices of a call, with ids from 101 on.
std::vector<Choices::Request> BeginOthers(CallId call, Choices* choices) {
  CallId last = 100;
  return choices->TakeOthers(choices->Of(call), [&last] { return ++last; });
}

TEST(ChoicesTest, ACallOfOneChoiceIsItself) {
  Choices choices;
  choices.Begin(5, RequestOf(1));
  EXPECT_EQ(choices.Of(5).call, 5u);
  EXPECT_EQ(choices.Of(5).index, 0u);
  EXPECT_TRUE(BeginOthers(5, &choices).empty());
  choices.OnTokens(choices.Of(5), 3);
  EXPECT_EQ(choices.NumTokens(5, 12), 12);
  EXPECT_EQ(choices.End(5), std::vector<CallId>{5}) << "it is under way until it has ended";
  EXPECT_TRUE(choices.OnEnded(5));
  EXPECT_TRUE(choices.End(5, /*ended=*/5).empty());
}

TEST(ChoicesTest, TheOthersBeginOnceWithSeedsAndIdsOfTheirOwn) {
  Choices choices;
  choices.Begin(5, RequestOf(3, std::numeric_limits<uint64_t>::max()));
  const std::vector<Choices::Request> others = BeginOthers(5, &choices);
  ASSERT_EQ(others.size(), 2u);
  std::set<std::string> ids = {RequestOf(3).UniqueId()};
  for (uint32_t i = 0; i < 2; ++i) {
    const auto& [id, request] = others[i];
    EXPECT_EQ(id, 101 + i);
    EXPECT_EQ(choices.Of(id).call, 5u);
    EXPECT_EQ(choices.Of(id).index, i + 1);
    EXPECT_EQ(request.choice, i + 1);
    EXPECT_EQ(request.request_id, "mine");
    EXPECT_EQ(request.prompt_token_ids, RequestOf(3).prompt_token_ids);
    EXPECT_EQ(request.open.sampling().seed(), i) << "seeds wrap around";
    ids.insert(request.UniqueId());
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_TRUE(BeginOthers(5, &choices).empty()) << "they begin once";
  EXPECT_TRUE(BeginOthers(101, &choices).empty()) << "only the first one begins others";
}

TEST(ChoicesTest, TheCallEndsWithItsLastChoice) {
  Choices choices;
  choices.Begin(5, RequestOf(3));
  BeginOthers(5, &choices);
  for (const CallId id : {5, 101, 102}) choices.OnTokens(choices.Of(id), 10);
  EXPECT_EQ(choices.NumTokens(5, 0), 30);
  EXPECT_FALSE(choices.OnEnded(102));
  EXPECT_FALSE(choices.OnEnded(5)) << "the first choice may end before the others";
  EXPECT_TRUE(choices.OnEnded(101));
  EXPECT_TRUE(choices.End(5, /*ended=*/101).empty());
  EXPECT_EQ(choices.Of(101).call, 101u) << "nothing is left of it";
  EXPECT_EQ(choices.NumTokens(5, 0), 0);
}

TEST(ChoicesTest, ACallThatIsGivenUpNamesWhatStillRuns) {
  Choices choices;
  choices.Begin(5, RequestOf(4));
  BeginOthers(5, &choices);
  EXPECT_FALSE(choices.OnEnded(102));
  EXPECT_EQ(choices.End(5, /*ended=*/101), (std::vector<CallId>{5, 103}));
  EXPECT_EQ(choices.Of(103).call, 103u);
  // Before the others have begun, there is only the first one.
  choices.Begin(6, RequestOf(4));
  EXPECT_EQ(choices.End(6), std::vector<CallId>{6});
  EXPECT_TRUE(BeginOthers(6, &choices).empty());
}

}  // namespace
}  // namespace tandem
