#include "services/gateway/api/answers/completion_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "services/gateway/api/answers/choice_logprobs.h"
#include "services/gateway/api/fields/json_body.h"

namespace tandem::gateway {
namespace {

v1::GenerateResponse Message(const std::string& text) {
  v1::GenerateResponse message;
  message.set_text(text);
  return message;
}

v1::GenerateResponse Last(const std::string& text) {
  v1::GenerateResponse message = Message(text);
  v1::Completion* completion = message.mutable_completion();
  completion->set_finish_reason(v1::FINISH_REASON_STOP);
  completion->set_stop_string("<end>");
  completion->mutable_usage()->set_prompt_tokens(3);
  completion->mutable_usage()->set_completion_tokens(2);
  completion->mutable_usage()->set_cached_prompt_tokens(1);
  completion->mutable_usage()->set_accepted_prediction_tokens(4);
  completion->mutable_speculation()->set_num_draft_tokens(8);
  completion->mutable_speculation()->set_num_accepted_tokens(2);
  completion->add_warnings("mind the gap");
  return message;
}

// The data of a text that consists of one event.
Json EventOf(const std::string& text) {
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n")) << text;
  return Json::parse(text.substr(6));
}

TEST(CompletionResponseTest, ChoicesAndCountsComeTogetherInOneBody) {
  CompletionResponse response({"cmpl-1", 7, "m", ""}, {}, 2);
  EXPECT_EQ(response.Add(1, Message("b")), "");
  EXPECT_EQ(response.Add(0, Last("a\"\n")), "");
  EXPECT_FALSE(response.is_complete());
  EXPECT_EQ(response.Add(1, Last("c")), "");
  ASSERT_TRUE(response.is_complete());
  const Json body = Json::parse(response.Body());
  EXPECT_EQ(body["id"], "cmpl-1");
  EXPECT_EQ(body["created"], 7);
  EXPECT_EQ(body["choices"][0]["text"], "a\"\n");
  EXPECT_EQ(body["choices"][1]["text"], "bc");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][1]["stop_reason"], "<end>");
  EXPECT_TRUE(body["choices"][1]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["total_tokens"], 10);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], 8);
  EXPECT_EQ(body["speculation"]["acceptance_rate"], 0.25);
  EXPECT_EQ(body["warnings"], Json::array({"mind the gap"}));
}

TEST(CompletionResponseTest, WarningsStandBesideTheEndOfAChoiceWithoutAnEventForTheUsage) {
  AnswerOptions options;
  options.stream = true;
  CompletionResponse response({"cmpl-1", 7, "m", ""}, options, 1);
  EXPECT_FALSE(EventOf(response.Add(0, Message("a"))).contains("warnings"));
  const Json last = EventOf(response.Add(0, Last("b")));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(last["warnings"], Json::array({"mind the gap"}));
  EXPECT_FALSE(last.contains("usage"));
}

TEST(CompletionResponseTest, EventsHaveNoFinishReasonBeforeTheEnd) {
  AnswerOptions options;
  options.stream = true;
  options.include_usage = true;
  CompletionResponse response({"cmpl-1", 7, "m", ""}, options, 1);
  const Json first = EventOf(response.Add(0, Message("a")));
  EXPECT_EQ(first["choices"][0]["text"], "a");
  EXPECT_TRUE(first["choices"][0]["finish_reason"].is_null() && first["usage"].is_null());
  EXPECT_EQ(response.Add(0, Message("")), "");
  const Json last = EventOf(response.Add(0, Last("")));
  EXPECT_EQ(last["choices"][0]["text"], "");
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  const std::string end = response.LastEvents();
  ASSERT_TRUE(end.ends_with("\n\ndata: [DONE]\n\n"));
  const Json usage = EventOf(end.substr(0, end.size() - 14));
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
}

TEST(CompletionResponseTest, BytesThatAreNotUtf8DoNotReachTheClient) {
  CompletionResponse response({"cmpl-1", 7, "m", ""}, {}, 1);
  response.Add(0, Last("a\xff"));
  EXPECT_EQ(Json::parse(response.Body())["choices"][0]["text"], "a\xef\xbf\xbd");
}

TEST(ChoiceLogprobsTest, OffsetsCountCharactersAndPartsHaveNamesOfTheirOwn) {
  ChoiceLogprobs logprobs;
  logprobs.SetEcho("pr\xc3\xa4");
  const auto add = [&](const std::string& text, const std::string& bytes, float logprob) {
    v1::TokenLogprobs token;
    token.set_text(text);
    token.set_bytes(bytes);
    token.set_logprob(logprob);
    v1::TopLogprob* top = token.add_top();
    top->set_text("x");
    top->set_bytes("x");
    top->set_logprob(-0.5f);
    logprobs.Add(token);
  };
  add("\xc3\xa4", "\xc3\xa4", -1);
  add("\xef\xbf\xbd", "\xe2\x82", -std::numeric_limits<float>::infinity());
  add("\xef\xbf\xbd", "\xac", std::nanf(""));
  add("x", "x", -0.5f);
  const Json got = Json::parse(logprobs.Take());
  EXPECT_EQ(got["tokens"], Json::array({"\xc3\xa4", "bytes:\\xe2\\x82", "bytes:\\xac", "x"}));
  EXPECT_EQ(got["text_offset"], Json::array({3, 4, 5, 5}));
  EXPECT_EQ(got["token_logprobs"][1], -9999);
  EXPECT_TRUE(got["token_logprobs"][2].is_null() || got["token_logprobs"][2] == -9999);
  EXPECT_EQ(got["top_logprobs"][0].size(), 2u);  // the chosen token and the alternative
  EXPECT_EQ(got["top_logprobs"][3].size(), 1u);  // they are the same
  EXPECT_TRUE(logprobs.empty());
}

template <typename Entry>
void SetText(const std::string& bytes, Entry* entry) {
  entry->set_text(bytes);
  entry->set_bytes(bytes);
}

v1::TokenLogprobs Token(const std::string& bytes, float logprob) {
  v1::TokenLogprobs token;
  SetText(bytes, &token);
  token.set_logprob(logprob);
  return token;
}

TEST(ChoiceLogprobsTest, TokensOfThePromptHaveTheirPlacesInItsText) {
  ChoiceLogprobs logprobs;
  logprobs.SetEcho("pr\xc3\xa4 x");
  v1::PromptStart start;
  SetText("<s>", &start);  // the tokenizer added it
  logprobs.AddStart(start);
  for (const char* bytes : {" pr", "\xc3", "\xa4", "</s>", " x"}) {
    logprobs.AddPrompt(Token(bytes, -1));
  }
  logprobs.Add(Token("yy", -2));
  logprobs.Add(Token("z", -3));
  const Json got = Json::parse(logprobs.Take());
  EXPECT_EQ(got["text_offset"], Json::array({0, 0, 2, 3, 3, 3, 5, 7}));
  EXPECT_EQ(got["tokens"][0], "<s>");
  EXPECT_TRUE(got["token_logprobs"][0].is_null() && got["top_logprobs"][0].is_null());
  EXPECT_EQ(got["token_logprobs"][1], -1);
  EXPECT_EQ(got["top_logprobs"][1], Json({{" pr", -1}}));
  EXPECT_EQ(got["token_logprobs"].size(), 8u);
}

TEST(CompletionResponseTest, EachChoiceBeginsWithTheLogprobsOfThePrompt) {
  AnswerOptions options;
  options.num_choices = 2;
  options.echo = true;
  options.logprobs = true;
  CompletionResponse response({"cmpl-1", 7, "m", ""}, options, 1);
  response.SetEcho(0, "ab");
  v1::GenerateResponse first;
  SetText("a", first.mutable_prompt_start());
  EXPECT_EQ(response.Add(0, first), "");
  v1::GenerateResponse last = Last("c");
  *last.add_prompt_logprobs() = Token("b", -1);
  *last.add_logprobs() = Token("c", -2);
  response.Add(0, last);
  v1::GenerateResponse other = Last("d");
  other.set_index(1);
  *other.add_logprobs() = Token("d", -3);
  response.Add(0, other);
  ASSERT_TRUE(response.is_complete());
  const Json choices = Json::parse(response.Body())["choices"];
  EXPECT_EQ(choices[0]["text"], "abc");
  EXPECT_EQ(choices[1]["text"], "abd");
  EXPECT_EQ(choices[0]["logprobs"]["tokens"], Json::array({"a", "b", "c"}));
  EXPECT_EQ(choices[1]["logprobs"]["tokens"], Json::array({"a", "b", "d"}));
  EXPECT_EQ(choices[1]["logprobs"]["token_logprobs"], Json::array({nullptr, -1, -3}));
  EXPECT_EQ(choices[1]["logprobs"]["text_offset"], Json::array({0, 1, 2}));
}

}  // namespace
}  // namespace tandem::gateway
