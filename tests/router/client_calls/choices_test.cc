#include "services/router/client_calls/choices.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>
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

// Begins all choices of a call, with ids from 101 on. Returns their requests.
std::vector<GenerationRequest> BeginOthers(CallId call, Choices* choices) {
  std::vector<GenerationRequest> others;
  CallId newest = call;
  for (CallId id = 101;; newest = id++) {
    std::optional<GenerationRequest> next = choices->TakeNext(choices->Of(newest), id);
    if (!next.has_value()) return others;
    others.push_back(*std::move(next));
  }
}

std::vector<CallId> Ids(const std::vector<Choices::Running>& running) {
  std::vector<CallId> ids;
  for (const Choices::Running& choice : running) ids.push_back(choice.id);
  return ids;
}

TEST(ChoicesTest, ACallOfOneChoiceIsItself) {
  Choices choices;
  choices.Begin(5, RequestOf(1));
  EXPECT_EQ(choices.Of(5).call, 5u);
  EXPECT_EQ(choices.Of(5).index, 0u);
  EXPECT_TRUE(BeginOthers(5, &choices).empty());
  choices.OnTokens(5, 3);
  const std::vector<Choices::Running> running = choices.End(5, 12);
  EXPECT_EQ(Ids(running), std::vector<CallId>{5}) << "it is under way until it has ended";
  EXPECT_EQ(running.at(0).num_tokens, 12);
  EXPECT_TRUE(choices.OnEnded(5));
  EXPECT_TRUE(choices.End(5, 12, /*ended=*/5).empty());
}

TEST(ChoicesTest, EachOtherBeginsOnceWithASeedAndAnIdOfItsOwn) {
  Choices choices;
  choices.Begin(5, RequestOf(3, std::numeric_limits<uint64_t>::max()));
  const std::vector<GenerationRequest> others = BeginOthers(5, &choices);
  ASSERT_EQ(others.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(choices.Of(101 + i).call, 5u);
    EXPECT_EQ(choices.Of(101 + i).index, i + 1);
    EXPECT_EQ(others[i].choice, i + 1);
    EXPECT_EQ(others[i].request_id, "mine");
    EXPECT_EQ(others[i].prompt_token_ids, RequestOf(3).prompt_token_ids);
    EXPECT_EQ(others[i].open.sampling().seed(), i) << "seeds wrap around";
  }
  for (const CallId id : {5, 101, 102}) {
    EXPECT_FALSE(choices.TakeNext(choices.Of(id), 200).has_value()) << id;
  }
}

TEST(ChoicesTest, OnlyTheNewestOneBeginsTheNext) {
  Choices choices;
  choices.Begin(5, RequestOf(4));
  EXPECT_TRUE(choices.TakeNext(choices.Of(5), 101).has_value());
  EXPECT_FALSE(choices.TakeNext(choices.Of(5), 102).has_value()) << "one waits at a time";
  EXPECT_TRUE(choices.TakeNext(choices.Of(101), 102).has_value());
  EXPECT_FALSE(choices.OnEnded(5));
  EXPECT_FALSE(choices.OnEnded(101));
  EXPECT_EQ(choices.TakeNext(choices.Of(102), 103)->choice, 3u);
  EXPECT_FALSE(choices.OnEnded(102));
  EXPECT_TRUE(choices.OnEnded(103));
}

TEST(ChoicesTest, TheCallEndsWithItsLastChoice) {
  Choices choices;
  choices.Begin(5, RequestOf(3));
  BeginOthers(5, &choices);
  EXPECT_FALSE(choices.OnEnded(102));
  EXPECT_FALSE(choices.OnEnded(5)) << "the first choice may end before the others";
  EXPECT_TRUE(choices.OnEnded(101));
  EXPECT_TRUE(choices.End(5, 0, /*ended=*/101).empty());
  EXPECT_EQ(choices.Of(101).call, 101u) << "nothing is left of it";
}

TEST(ChoicesTest, ACallThatIsGivenUpNamesWhatStillRuns) {
  Choices choices;
  choices.Begin(5, RequestOf(4));
  BeginOthers(5, &choices);
  choices.OnTokens(5, 10);
  choices.OnTokens(103, 2);
  choices.OnTokens(103, 3);
  EXPECT_FALSE(choices.OnEnded(102));
  const std::vector<Choices::Running> running = choices.End(5, 0, /*ended=*/101);
  EXPECT_EQ(Ids(running), (std::vector<CallId>{103, 5})) << "the newest first";
  EXPECT_EQ(running.at(0).num_tokens, 5);
  EXPECT_EQ(running.at(1).num_tokens, 10);
  EXPECT_EQ(choices.Of(103).call, 103u);
  // Before the others have begun, there is only the first one.
  choices.Begin(6, RequestOf(4));
  EXPECT_EQ(Ids(choices.End(6, 0)), std::vector<CallId>{6});
  EXPECT_TRUE(BeginOthers(6, &choices).empty());
}

}  // namespace
}  // namespace tandem
