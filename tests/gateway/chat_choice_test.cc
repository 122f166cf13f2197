#include "services/gateway/api/answers/chat_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/api/answers/completion_response.h"
#include "services/gateway/api/fields/json_body.h"

namespace tandem::gateway::chat_choice_test {
namespace {

using ::testing::MatchesRegex;

v1::GenerateResponse Message(const std::string& text, int index = 0) {
  v1::GenerateResponse message;
  message.set_text(text);
  message.set_index(index);
  return message;
}

v1::GenerateResponse Last(const std::string& text, int index = 0,
                          v1::FinishReason reason = v1::FINISH_REASON_STOP) {
  v1::GenerateResponse message = Message(text, index);
  message.mutable_completion()->set_finish_reason(reason);
  message.mutable_completion()->mutable_usage()->set_prompt_tokens(5);
  message.mutable_completion()->mutable_usage()->set_completion_tokens(2);
  return message;
}

AnswerOptions Chat() {
  AnswerOptions options;
  options.is_chat = true;
  return options;
}

Json EventOf(const std::string& text) {
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n")) << text;
  return Json::parse(text.substr(6));
}

TEST(ChatChoiceTest, AWholeAnswerHasAMessage) {
  CompletionResponse response({"chatcmpl-1", 7, "m", ""}, Chat(), 1);
  response.Add(0, Message("Hel"));
  response.Add(0, Last("lo"));
  const Json body = Json::parse(response.Body());
  EXPECT_EQ(body["object"], "chat.completion");
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"],
            Json::parse(R"({"role": "assistant", "content": "Hello", "refusal": null})"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
}

TEST(ChatChoiceTest, AStreamBeginsWithTheRoleAndEndsWithTheReason) {
  AnswerOptions options = Chat();
  options.stream = true;
  CompletionResponse response({"chatcmpl-1", 7, "m", ""}, options, 1);
  const Json first = EventOf(response.Add(0, Message("Hel")));
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"],
            Json::parse(R"({"role": "assistant", "content": "Hel"})"));
  EXPECT_TRUE(first["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(EventOf(response.Add(0, Message("lo")))["choices"][0]["delta"],
            Json::parse(R"({"content": "lo"})"));
  const Json last = EventOf(response.Add(0, Last("", 0, v1::FINISH_REASON_LENGTH)));
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
}

TEST(ChatChoiceTest, AnAnswerWithoutTextStillHasTheRoleAndAContent) {
  AnswerOptions options = Chat();
  options.stream = true;
  CompletionResponse response({"chatcmpl-1", 7, "m", ""}, options, 1);
  EXPECT_EQ(EventOf(response.Add(0, Last("")))["choices"][0]["delta"],
            Json::parse(R"({"role": "assistant", "content": ""})"));
}

TEST(ChatChoiceTest, TheChoicesOfAPromptShareItsTokens) {
  AnswerOptions options = Chat();
  options.num_choices = 2;
  CompletionResponse response({"chatcmpl-1", 7, "m", ""}, options, 1);
  response.Add(0, Last("b", 1));
  EXPECT_FALSE(response.is_complete());
  response.Add(0, Last("a", 0));
  ASSERT_TRUE(response.is_complete());
  EXPECT_EQ(response.Add(0, Message("of nobody", 2)), "");
  const Json body = Json::parse(response.Body());
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "b");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
}

TEST(ChatChoiceTest, CallsOfToolsAreFoundInAWholeAnswer) {
  AnswerOptions options = Chat();
  options.tool_names = {"f", "g"};
  CompletionResponse response({"chatcmpl-1", 7, "m", "hermes"}, options, 1);
  response.Add(0, Message("<tool_call>{\"name\": \"f\", \"argum"));
  response.Add(0, Last("ents\": {\"x\": 1}}</tool_call>"));
  const Json choice = Json::parse(response.Body())["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"],
            Json::parse(R"([{"id": "call_chatcmpl-1-0-0", "type": "function",
                             "function": {"name": "f", "arguments": "{\"x\": 1}"}}])"));
}

TEST(ChatChoiceTest, CallsOfToolsAreStreamedInParts) {
  AnswerOptions options = Chat();
  options.tool_names = {"f", "g"};
  options.stream = true;
  CompletionResponse response({"chatcmpl-1", 7, "m", "hermes"}, options, 1);
  const Json first = EventOf(response.Add(
      0, Message("Hm.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x")))["choices"][0]["delta"];
  EXPECT_EQ(first["content"], "Hm.");
  EXPECT_EQ(first["tool_calls"],
            Json::parse(R"([{"index": 0, "id": "call_chatcmpl-1-0-0", "type": "function",
                             "function": {"name": "f", "arguments": "{\"x"}}])"));
  EXPECT_EQ(EventOf(response.Add(0, Message("\": 1}}</tool_")))["choices"][0]["delta"],
            Json::parse(R"({"tool_calls": [{"index": 0, "function": {"arguments": "\": 1}"}}]})"));
  EXPECT_EQ(response.Add(0, Message("call>")), "");
  EXPECT_EQ(EventOf(response.Add(0, Last("")))["choices"][0]["finish_reason"], "tool_calls");
}

TEST(ChatChoiceTest, ACallThatTheLimitCutOffIsNotACallToMake) {
  AnswerOptions options = Chat();
  options.tool_names = {"f", "g"};
  CompletionResponse response({"chatcmpl-1", 7, "m", "hermes"}, options, 1);
  response.Add(
      0, Last("<tool_call>{\"name\": \"f\", \"arguments\": {\"x", 0, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(Json::parse(response.Body())["choices"][0]["finish_reason"], "length");
}

TEST(ChatChoiceTest, ACallThatBreaksOffOrIsStoppedIsNotACallToMake) {
  AnswerOptions options = Chat();
  options.tool_names = {"f"};
  for (const char* text : {"<tool_call>{\"name\": \"f\", oops",
                           "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"a"}) {
    CompletionResponse response({"chatcmpl-1", 7, "m", "hermes"}, options, 1);
    response.Add(0, Last(text));
    EXPECT_EQ(Json::parse(response.Body())["choices"][0]["finish_reason"], "stop") << text;
  }
}

TEST(ChatChoiceTest, TheEndOfTheTextIsNoStopThatTheClientAskedFor) {
  AnswerOptions options = Chat();
  options.stop_token_ids = {8};
  for (const int32_t id : {7, 8}) {
    CompletionResponse response({"chatcmpl-1", 7, "m", ""}, options, 1);
    v1::GenerateResponse last = Last("a");
    last.mutable_completion()->set_stop_token_id(id);
    response.Add(0, last);
    const Json choice = Json::parse(response.Body())["choices"][0];
    EXPECT_EQ(choice["stop_reason"], id == 8 ? Json(8) : Json()) << id;
  }
}

TEST(ChatChoiceTest, AClientThatWantsOneCallGetsTheFirstOne) {
  AnswerOptions options = Chat();
  options.tool_names = {"f", "g"};
  options.one_call = true;
  CompletionResponse response({"chatcmpl-1", 7, "m", "mistral"}, options, 1);
  response.Add(0, Last("[TOOL_CALLS]f{}[TOOL_CALLS]g{}"));
  const Json choice = Json::parse(response.Body())["choices"][0];
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST(ChatChoiceTest, IdsOfMistralHaveNineLettersAndDigits) {
  AnswerOptions options = Chat();
  options.tool_names = {"f", "g"};
  CompletionResponse response({"chatcmpl-1", 7, "m", "mistral"}, options, 1);
  response.Add(0, Last("[TOOL_CALLS]f{}[TOOL_CALLS]g{}"));
  const Json calls = Json::parse(response.Body())["choices"][0]["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  for (const Json& call : calls) {
    EXPECT_THAT(call["id"].get<std::string>(), MatchesRegex("[0-9a-zA-Z]+"));
    EXPECT_EQ(call["id"].get<std::string>().size(), 9u);
  }
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST(ChatChoiceTest, WithoutToolsMarksStayText) {
  CompletionResponse response({"chatcmpl-1", 7, "m", "hermes"}, Chat(), 1);
  response.Add(0, Last("<tool_call>{\"name\": \"f\"}</tool_call>"));
  EXPECT_EQ(Json::parse(response.Body())["choices"][0]["message"]["content"],
            "<tool_call>{\"name\": \"f\"}</tool_call>");
}

TEST(ChatChoiceTest, LogprobsHaveAnEntryForEachToken) {
  AnswerOptions options = Chat();
  options.logprobs = true;
  CompletionResponse response({"chatcmpl-1", 7, "m", ""}, options, 1);
  v1::GenerateResponse message = Last("\xc3\xa4");
  v1::TokenLogprobs* token = message.add_logprobs();
  token->set_text("\xc3\xa4");
  token->set_bytes("\xc3\xa4");
  token->set_logprob(-0.5f);
  v1::TopLogprob* top = token->add_top();
  top->set_text("\xef\xbf\xbd");
  top->set_bytes("\xc3");
  top->set_logprob(-1);
  response.Add(0, message);
  EXPECT_EQ(Json::parse(response.Body())["choices"][0]["logprobs"], Json::parse(R"({"content": [
      {"token": "ä", "logprob": -0.5, "bytes": [195, 164],
       "top_logprobs": [{"token": "bytes:\\xc3", "logprob": -1.0, "bytes": [195]}]}],
      "refusal": null})"));
}

}  // namespace
}  // namespace tandem::gateway::chat_choice_test
