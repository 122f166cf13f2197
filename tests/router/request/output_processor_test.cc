#include "services/router/request/output_processor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/toy_tokenizer.h"

namespace tandem::output_processor_test {
namespace {

using testing::ToyTokenizer;

// Entries: 0 "a", 1 "b", 2 "ab", 3 and 4 the halves of "é", 5 " ", 6 "</s>" (special).
const ToyTokenizer& Vocabulary() {
  static const ToyTokenizer vocabulary({"a", "b", "ab", "\xC3", "\xA9", " ", "</s>"});
  return vocabulary;
}

GenerationRequest Request() {
  GenerationRequest request;
  request.request_id = "mine";
  request.prompt_token_ids = {0};
  request.max_tokens = 100;
  return request;
}

struct Outcome {
  std::vector<int32_t> ids;
  std::string text;
  bool finished = false;
  v1::Completion completion;
  std::vector<std::string> texts;
};

Outcome Process(const GenerationRequest& request, const std::vector<int32_t>& tokens) {
  OutputProcessor output(&request, &Vocabulary());
  Outcome outcome;
  for (int32_t token : tokens) {
    outcome.finished = output.Push(token, v1::TOKEN_SOURCE_PLAIN, nullptr);
    const v1::GenerateResponse response = output.Take();
    EXPECT_EQ(response.token_ids_size(), response.sources_size());
    outcome.ids.insert(outcome.ids.end(), response.token_ids().begin(), response.token_ids().end());
    outcome.text += response.text();
    outcome.texts.push_back(response.text());
    if (outcome.finished) break;
  }
  outcome.completion = output.completion();
  return outcome;
}

TEST(OutputProcessorTest, EndsAtTheLimit) {
  GenerationRequest request = Request();
  request.max_tokens = 3;
  const Outcome outcome = Process(request, {0, 1, 0, 1});
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.ids, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(outcome.text, "aba");
  EXPECT_EQ(outcome.completion.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(outcome.completion.stop_reason_case(), v1::Completion::STOP_REASON_NOT_SET);
}

TEST(OutputProcessorTest, AStopTokenIsTheLastIdAndAddsNoText) {
  GenerationRequest request = Request();
  request.stop_token_ids = {1};
  Outcome outcome = Process(request, {0, 2, 1, 0});
  EXPECT_EQ(outcome.ids, (std::vector<int32_t>{0, 2, 1}));
  EXPECT_EQ(outcome.text, "aab");
  EXPECT_EQ(outcome.completion.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(outcome.completion.stop_token_id(), 1);

  request.include_stop_in_output = true;
  EXPECT_EQ(Process(request, {0, 2, 1, 0}).text, "aabb");
}

TEST(OutputProcessorTest, SpecialTokensAreTextOnlyWhenAskedFor) {
  GenerationRequest request = Request();
  request.max_tokens = 2;
  EXPECT_EQ(Process(request, {6, 0}).text, "a");
  request.skip_special_tokens = false;
  EXPECT_EQ(Process(request, {6, 0}).text, "</s>a");
}

TEST(OutputProcessorTest, AStopStringMaySpanTokensAndIsCutOff) {
  GenerationRequest request = Request();
  request.stop_strings = {"b a"};
  const Outcome outcome = Process(request, {2, 5, 2, 0});
  EXPECT_EQ(outcome.ids, (std::vector<int32_t>{2, 5, 2}));
  EXPECT_EQ(outcome.text, "a");
  EXPECT_EQ(outcome.texts, (std::vector<std::string>{"a", "", ""}));
  EXPECT_EQ(outcome.completion.stop_string(), "b a");

  request.include_stop_in_output = true;
  EXPECT_EQ(Process(request, {2, 5, 2, 0}).text, "ab a");
}

TEST(OutputProcessorTest, WithheldTextComesWhenTheOutputEndsOtherwise) {
  GenerationRequest request = Request();
  request.stop_strings = {"b a"};
  request.max_tokens = 2;
  EXPECT_EQ(Process(request, {2, 5}).text, "ab ");
  request.max_tokens = 10;
  request.stop_token_ids = {6};
  EXPECT_EQ(Process(request, {2, 5, 6}).text, "ab ");
}

TEST(OutputProcessorTest, ACharacterIsWholeOrReplacedAtTheEnd) {
  GenerationRequest request = Request();
  request.max_tokens = 2;
  EXPECT_EQ(Process(request, {3, 4}).texts, (std::vector<std::string>{"", "\xC3\xA9"}));
  EXPECT_EQ(Process(request, {0, 3}).text, "a\xEF\xBF\xBD");
}

TEST(OutputProcessorTest, StopsCountOnlyAfterMinTokens) {
  GenerationRequest request = Request();
  request.min_tokens = 2;
  request.stop_strings = {"a"};
  const Outcome outcome = Process(request, {0, 0, 1, 0, 1});
  EXPECT_EQ(outcome.ids, (std::vector<int32_t>{0, 0, 1, 0}));
  EXPECT_EQ(outcome.text, "aab");

  request.stop_strings.clear();
  request.stop_token_ids = {0};
  EXPECT_EQ(Process(request, {1, 0, 0, 1}).ids, (std::vector<int32_t>{1, 0, 0}));
}

TEST(OutputProcessorTest, AStopOnTheLastAllowedTokenIsAStop) {
  GenerationRequest request = Request();
  request.max_tokens = 2;
  request.stop_token_ids = {1};
  EXPECT_EQ(Process(request, {0, 1}).completion.finish_reason(), v1::FINISH_REASON_STOP);
  request.stop_token_ids.clear();
  request.stop_strings = {"ab"};
  EXPECT_EQ(Process(request, {0, 1}).completion.finish_reason(), v1::FINISH_REASON_STOP);
}

TEST(OutputProcessorTest, LogprobsHaveTextAndBytesWhenAskedFor) {
  GenerationRequest request = Request();
  request.wants_logprobs = true;
  for (const bool with_text : {false, true}) {
    request.logprobs_with_text = with_text;
    OutputProcessor output(&request, &Vocabulary());
    v1::TokenLogprobs logprobs;
    logprobs.add_top()->set_token_id(0);
    logprobs.add_top()->set_token_id(3);
    output.Push(3, v1::TOKEN_SOURCE_PLAIN, &logprobs);
    const v1::GenerateResponse response = output.Take();
    ASSERT_EQ(response.logprobs_size(), 1);
    const v1::TokenLogprobs& got = response.logprobs(0);
    EXPECT_EQ(got.bytes(), with_text ? "\xC3" : "");
    EXPECT_EQ(got.text(), with_text ? "\xEF\xBF\xBD" : "") << "half a character";
    ASSERT_EQ(got.top_size(), 2);
    EXPECT_EQ(got.top(0).text(), with_text ? "a" : "");
    EXPECT_EQ(got.top(0).bytes(), with_text ? "a" : "");
    EXPECT_EQ(got.top(1).bytes(), with_text ? "\xC3" : "");
  }
}

TEST(OutputProcessorTest, LogprobsComeWithTheirTokens) {
  GenerationRequest request = Request();
  request.wants_logprobs = true;
  OutputProcessor output(&request, &Vocabulary());
  v1::TokenLogprobs logprobs;
  logprobs.set_logprob(-0.5f);
  EXPECT_FALSE(output.Push(0, v1::TOKEN_SOURCE_BONUS, &logprobs));
  const v1::GenerateResponse response = output.Take();
  ASSERT_EQ(response.logprobs_size(), 1);
  EXPECT_EQ(response.logprobs(0).logprob(), -0.5f);
  EXPECT_EQ(response.sources(0), v1::TOKEN_SOURCE_BONUS);
  EXPECT_EQ(response.request_id(), "mine");
}

}  // namespace
}  // namespace tandem::output_processor_test
