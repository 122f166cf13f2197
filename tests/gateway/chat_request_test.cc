#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/api/requests/completion_request.h"

namespace tandem::gateway::chat_request_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A body with this list of messages and these further members.
std::string Body(const std::string& messages, const std::string& more = "") {
  return "{\"messages\": " + messages + (more.empty() ? "" : ", ") + more + "}";
}

std::string Hello(const std::string& more = "") {
  return Body(R"([{"role": "user", "content": "Hi"}])", more);
}

v1::GenerateRequest Parsed(const std::string& body) {
  auto request = CompletionRequest::ParseChat(body);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? request->Take(0, "id") : v1::GenerateRequest();
}

std::string Refusal(const std::string& body) {
  const auto request = CompletionRequest::ParseChat(body);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(request.status().message());
}

TEST(ChatRequestTest, MessagesReachTheRouterWithEverythingThatTemplatesRead) {
  const v1::GenerateRequest request = Parsed(Body(R"([
      {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "user", "content": "", "name": "Ann"},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "refusal": null,
       "tool_calls": [{"id": "c1", "type": "function",
                       "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "7"}])"));
  ASSERT_EQ(request.input_case(), v1::GenerateRequest::kChat);
  const v1::Chat& chat = request.chat();
  ASSERT_EQ(chat.messages_size(), 4);
  EXPECT_EQ(chat.messages(0).content(), "a\nb");
  EXPECT_EQ(chat.messages(1).name(), "Ann");
  EXPECT_TRUE(chat.messages(1).has_content());
  EXPECT_FALSE(chat.messages(2).has_content());
  EXPECT_EQ(chat.messages(2).reasoning(), "hm");
  ASSERT_EQ(chat.messages(2).tool_calls_size(), 1);
  EXPECT_EQ(chat.messages(2).tool_calls(0).id(), "c1");
  EXPECT_EQ(chat.messages(2).tool_calls(0).name(), "f");
  EXPECT_EQ(chat.messages(2).tool_calls(0).arguments(), "{\"x\": 1}");
  EXPECT_EQ(chat.messages(3).tool_call_id(), "c1");
  EXPECT_FALSE(request.sampling_params().has_max_tokens());
  EXPECT_FALSE(request.has_add_special_tokens());
}

TEST(ChatRequestTest, FieldsOfChatsReachTheirPlaces) {
  const v1::GenerateRequest request = Parsed(
      Hello(R"("max_completion_tokens": 5, "n": 2, "logprobs": true, "top_logprobs": 3, "top_k": 4,
               "add_generation_prompt": false, "stop": "x", "speculation": {"drafter": "ngram"})"));
  EXPECT_EQ(request.sampling_params().max_tokens(), 5);
  EXPECT_EQ(request.sampling_params().n(), 2);
  EXPECT_EQ(request.sampling_params().logprobs(), 3);
  EXPECT_TRUE(request.sampling_params().logprobs_with_text());
  EXPECT_EQ(request.sampling_params().top_k(), 4);
  EXPECT_FALSE(request.chat().add_generation_prompt());
  EXPECT_THAT(request.sampling_params().stop(), ElementsAre("x"));
  EXPECT_EQ(request.speculation().drafter(), "ngram");
  EXPECT_EQ(Parsed(Hello("\"max_completion_tokens\": 5, \"max_tokens\": 6"))
                .sampling_params()
                .max_tokens(),
            5);
  EXPECT_EQ(Parsed(Hello("\"max_tokens\": 6")).sampling_params().max_tokens(), 6);
  EXPECT_THAT(Refusal(Hello("\"max_completion_tokens\": 0")),
              StartsWith("max_completion_tokens: got 0"));
  EXPECT_FALSE(Parsed(Hello("\"logprobs\": false")).sampling_params().has_logprobs());
}

TEST(ChatRequestTest, ToolsKeepTheOrderOfTheirKeys) {
  const std::string tools = R"([{"type":"function","function":{"name":"z","description":"\"],ä\n",)"
                            R"("a":{"b":[1,-2,0.5e1,null,true]}}}])";
  auto request = CompletionRequest::ParseChat(Hello("\"x\": {\"tools\": 1}, \"tools\": " + tools));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->answer().tool_names, ElementsAre("z"));
  EXPECT_EQ(request->Take(0, "").chat().tools_json(), tools);
  // A name with escapes is the same name, and the last one of two counts.
  const std::string body =
      Hello(R"("tools": 5, "to\u006fls": [{"function": {"name": "f"}, "b": 1, "a": 2}])");
  EXPECT_EQ(Parsed(body).chat().tools_json(), R"([{"function":{"name":"f"},"b":1,"a":2}])");
}

TEST(ChatRequestTest, ToolsThatTheModelMayNotCallAreNotShownToIt) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  const std::string none = "\"tool_choice\": \"none\"";
  for (const std::string& more : {none + ", " + tools, tools + ", " + none}) {
    auto request = CompletionRequest::ParseChat(Hello(more));
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_TRUE(request->answer().tool_names.empty());
    EXPECT_EQ(request->Take(0, "").chat().tools_json(), "");
  }
  EXPECT_THAT(Refusal(Hello(tools + ", \"tool_choice\": \"required\"")),
              StartsWith("tool_choice: got \"required\", allowed: auto or none"));
  EXPECT_THAT(Refusal(Hello(tools + R"(, "tool_choice": {"type": "function"})")),
              StartsWith("tool_choice: got an object"));
  EXPECT_THAT(Refusal(Hello(R"("tools": [{"type": "web_search"}])")),
              StartsWith("tools[0].type: got another type"));
  EXPECT_THAT(Refusal(Hello(R"("tools": [{"type": "function", "function": {}}])")),
              StartsWith("tools[0].function.name: got nothing"));
  EXPECT_THAT(Refusal(Hello(R"("tools": {})")), StartsWith("tools: got an object"));
}

TEST(ChatRequestTest, VariablesOfTheTemplateAreHandedOn) {
  EXPECT_THAT(
      Parsed(Hello(R"("chat_template_kwargs": {"z": 1, "a": 2})")).chat().template_kwargs_json(),
      HasSubstr(R"({"z":1,"a":2})"));
  EXPECT_EQ(Parsed(Hello(R"("chat_template_kwargs": {"a": 2}, "reasoning_effort": "low")"))
                .chat()
                .template_kwargs_json(),
            R"({"a":2,"reasoning_effort":"low"})");
  EXPECT_EQ(Parsed(Hello(R"("reasoning_effort": "a\"b")")).chat().template_kwargs_json(),
            R"({"reasoning_effort":"a\"b"})");
  EXPECT_EQ(Parsed(Hello(R"("chat_template_kwargs": {}, "reasoning_effort": "low")"))
                .chat()
                .template_kwargs_json(),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(Parsed(Hello(R"("chat_template_kwargs": {"reasoning_effort": 7},
                            "reasoning_effort": "low")"))
                .chat()
                .template_kwargs_json(),
            R"({"reasoning_effort":7})");
  // The body is read twice, and both readings must agree.
  EXPECT_THAT(Refusal(Hello(R"("chat_template_kwargs": 5, "chat_template_kwarg\u0073": 6)")),
              StartsWith("chat_template_kwargs: got 6"));
  EXPECT_EQ(Parsed(Hello(R"("chat_template_kwargs": 5, "chat_template_kwarg\u0073": {},
                            "reasoning_effort": "low")"))
                .chat()
                .template_kwargs_json(),
            R"({"reasoning_effort":"low"})");
  EXPECT_THAT(Refusal(Hello() + std::string("\0{", 2)), HasSubstr("not valid JSON at byte"));
}

TEST(ChatRequestTest, AnswersThatRefusedAreTexts) {
  const v1::GenerateRequest request = Parsed(Body(R"([
      {"role": "assistant", "content": null, "refusal": "no"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]},
      {"role": "assistant", "content": null}])"));
  EXPECT_EQ(request.chat().messages(0).content(), "no");
  EXPECT_EQ(request.chat().messages(1).content(), "never");
  EXPECT_TRUE(request.chat().messages(2).has_content());
}

TEST(ChatRequestTest, BadMessagesAreRefusedWithTheirPlace) {
  EXPECT_THAT(Refusal("{}"), StartsWith("messages: got nothing"));
  EXPECT_THAT(Refusal(Body("[]")), StartsWith("messages: got an empty list"));
  EXPECT_THAT(Refusal("{\"prompt\": \"a\"}"), StartsWith("prompt: got a string, leave it out"));
  EXPECT_THAT(Refusal(Body("7")), StartsWith("messages: got 7"));
  EXPECT_THAT(Refusal(Body("[7]")), StartsWith("messages[0]: got 7"));
  EXPECT_THAT(Refusal(Body(R"([{"content": "a"}])")), StartsWith("messages[0].role: got nothing"));
  EXPECT_THAT(Refusal(Body(R"([{"role": "user"}])")),
              StartsWith("messages[0].content: got nothing"));
  EXPECT_THAT(Refusal(Body(R"([{"role": "user", "content": 1}])")),
              StartsWith("messages[0].content: got 1"));
  EXPECT_THAT(Refusal(Body(R"([{"role": "user", "content": [{"type": "image_url"}]}])")),
              StartsWith("messages[0].content[0]: got a part of type \"image_url\""));
  EXPECT_THAT(Refusal(Body(R"([{"role": "assistant", "tool_calls": [{}]}])")),
              StartsWith("messages[0].tool_calls[0].function: got no object"));
  EXPECT_THAT(Refusal(Body(R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])")),
              StartsWith("messages[0].tool_calls[0].function.name: got nothing"));
  EXPECT_THAT(Refusal(Body(R"([{"role": "assistant", "function_call": {"name": "f"}}])")),
              StartsWith("messages[0].function_call: got a call"));
}

TEST(ChatRequestTest, FieldsThatWouldChangeTheAnswerAreRefusedByName) {
  for (const char* field :
       {"functions", "function_call", "audio", "chat_template", "documents",
        "continue_final_message", "prompt_logprobs", "echo", "verbosity", "response_format"}) {
    EXPECT_THAT(Refusal(Hello("\"" + std::string(field) + "\": {\"type\": \"x\"}")),
                StartsWith(std::string(field) + ": got"));
  }
  EXPECT_THAT(Refusal(Hello("\"top_logprobs\": 2")), StartsWith("top_logprobs: got 2 without"));
  EXPECT_THAT(Refusal(Hello("\"logprobs\": true, \"top_logprobs\": 21")),
              StartsWith("top_logprobs: got 21, allowed: from 0 to 20"));
  EXPECT_FALSE(Parsed(Hello("\"top_logprobs\": 0")).sampling_params().has_logprobs());
  EXPECT_EQ(Parsed(Hello(R"("parallel_tool_calls": true, "modalities": ["text"], "store": true,
                            "frobnicate": 1, "response_format": {"type": "text"})"))
                .chat()
                .messages_size(),
            1);
}

}  // namespace
}  // namespace tandem::gateway::chat_request_test
