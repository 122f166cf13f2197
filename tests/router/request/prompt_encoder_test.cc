#include "services/router/request/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/router/toy_tokenizer.h"

namespace tandem::prompt_encoder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ToyTokenizer;

constexpr size_t kMaxBytes = 10'000;

absl::StatusOr<ChatTemplate> Template(const std::string& source) {
  TemplateFiles files;
  files.templates["default"] = source;
  files.place = "/models/toy/chat_template.jinja";
  files.special_tokens["bos_token"] = "^";
  return ChatTemplate::Make(files);
}

// The entries are "a", "b" and the special token "^", which the tokenizer adds if it is asked to.
const ToyTokenizer& Entries() {
  static const ToyTokenizer tokenizer({"a", "b", "^"}, /*begins=*/true);
  return tokenizer;
}

v1::Chat OneMessage(const std::string& role, const std::string& content) {
  v1::Chat chat;
  v1::ChatMessage* message = chat.add_messages();
  message->set_role(role);
  message->set_content(content);
  return chat;
}

absl::StatusOr<PromptEncoder::Prompt> Encode(const std::string& source, const v1::Chat& chat,
                                             bool add_special_tokens = false) {
  const PromptEncoder encoder(&Entries(), Template(source), kMaxBytes);
  return encoder.EncodeChat(chat, add_special_tokens);
}

std::string Refusal(const std::string& source, const v1::Chat& chat) {
  const absl::Status status = Encode(source, chat).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(PromptEncoderTest, AChatBecomesThePromptThatItsTemplateWrites) {
  v1::Chat chat = OneMessage("user", "ab");
  v1::ChatMessage* answer = chat.add_messages();
  answer->set_role("assistant");
  answer->set_content("b");
  const auto prompt =
      Encode("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", chat);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->text, "^abb");
  EXPECT_THAT(prompt->ids, ElementsAre(2, 0, 1, 1));
}

TEST(PromptEncoderTest, TheBeginningOfTextTokenIsThereOnce) {
  const v1::Chat chat = OneMessage("user", "a");
  const std::string with = "{{ bos_token }}{{ messages[0].content }}";
  const std::string without = "{{ messages[0].content }}";
  EXPECT_THAT(Encode(with, chat, false)->ids, ElementsAre(2, 0));
  EXPECT_THAT(Encode(with, chat, true)->ids, ElementsAre(2, 0));
  EXPECT_THAT(Encode(without, chat, true)->ids, ElementsAre(2, 0));
  EXPECT_THAT(Encode(without, chat, false)->ids, ElementsAre(0));
}

TEST(PromptEncoderTest, TemplatesSeeToolsCallsVariablesAndWhetherAnAnswerBegins) {
  v1::Chat chat = OneMessage("user", "a");
  v1::ChatMessage* caller = chat.add_messages();
  caller->set_role("assistant");
  v1::ToolCall* call = caller->add_tool_calls();
  call->set_id("call_1");
  call->set_name("weather");
  call->set_arguments(R"({"city": "Paris"})");
  v1::ChatMessage* result = chat.add_messages();
  result->set_role("tool");
  result->set_tool_call_id("call_1");
  result->set_name("weather");
  result->set_content("b");
  chat.set_tools_json(R"([{"type": "function", "function": {"name": "weather"}}])");
  chat.set_template_kwargs_json(R"({"letter": "b"})");
  const std::string source =
      "{% if tools[0].function.name == 'weather' and letter == 'b' and add_generation_prompt "
      "and messages[1].content is not defined "
      "and messages[1].tool_calls[0].function.arguments.city == 'Paris' "
      "and messages[1].tool_calls[0].id == messages[2].tool_call_id "
      "and messages[2].name == 'weather' %}ab{% else %}b{% endif %}";
  EXPECT_EQ(Encode(source, chat)->text, "ab");
  chat.set_add_generation_prompt(false);
  EXPECT_EQ(Encode(source, chat)->text, "b");
}

TEST(PromptEncoderTest, ToolsThatATemplateDoesNotShowAreAWarning) {
  v1::Chat chat = OneMessage("user", "a");
  EXPECT_TRUE(Encode("a", chat)->warnings.empty());
  chat.set_tools_json("[{}]");
  EXPECT_THAT(Encode("a", chat)->warnings, ElementsAre(HasSubstr("does not show tools")));
  EXPECT_TRUE(Encode("{{ tools }}", chat)->warnings.empty());
}

TEST(PromptEncoderTest, ADeveloperIsTheSystemForATemplateThatDoesNotKnowTheRole) {
  const v1::Chat chat = OneMessage("developer", "a");
  EXPECT_EQ(Encode("{{ 'a' if messages[0].role == 'system' else 'b' }}", chat)->text, "a");
  EXPECT_EQ(Encode("{{ 'a' if messages[0].role == 'developer' else 'b' }}", chat)->text, "a");
}

TEST(PromptEncoderTest, RefusalsNameTheFieldAndWhatIsAllowed) {
  const std::string source = "{{ messages[0].content }}";
  EXPECT_THAT(Refusal(source, v1::Chat()), HasSubstr("chat.messages: got nothing"));
  EXPECT_THAT(Refusal(source, OneMessage("", "a")), HasSubstr("chat.messages[0].role: got"));
  v1::Chat chat = OneMessage("user", "a");
  chat.mutable_messages(0)->add_tool_calls();
  EXPECT_THAT(Refusal(source, chat), HasSubstr("chat.messages[0].tool_calls[0].name: got"));
  chat.mutable_messages(0)->mutable_tool_calls(0)->set_name("f");
  chat.mutable_messages(0)->mutable_tool_calls(0)->set_arguments(std::string(65, '['));
  EXPECT_THAT(Refusal(source, chat), HasSubstr("allowed: at most 64 levels"));
  chat = OneMessage("user", "a");
  for (const char* bad : {"[", "{}", "[1]"}) {
    chat.set_tools_json(bad);
    EXPECT_THAT(Refusal(source, chat), HasSubstr("chat.tools_json")) << bad;
  }
  chat.set_tools_json(std::string(65, '[') + std::string(65, ']'));
  EXPECT_THAT(Refusal(source, chat), HasSubstr("allowed: at most 64 levels"));
  std::string wide = "[{\"a\": 1";
  for (int i = 0; i < 1000; ++i) wide += ",\"" + std::to_string(i) + "\": 1";
  chat.set_tools_json(wide + "}]");
  EXPECT_THAT(Refusal(source, chat), HasSubstr("1000 members of an object"));
  chat.clear_tools_json();
  chat.set_template_kwargs_json("[]");
  EXPECT_THAT(Refusal(source, chat), HasSubstr("chat.template_kwargs_json: got array"));
  EXPECT_THAT(Refusal(source, OneMessage("user", std::string(kMaxBytes, 'a'))),
              HasSubstr("allowed: at most 10000 bytes"));
  EXPECT_THAT(Refusal("{{ messages[0].content * 10001 }}", OneMessage("user", "a")),
              HasSubstr("become a prompt of 10001 bytes"));
  EXPECT_THAT(Refusal("{{ raise_exception('no ' ~ messages[0].role) }}", OneMessage("user", "a")),
              HasSubstr("no user"));
}

TEST(PromptEncoderTest, WithoutATemplateTheMessageSaysSo) {
  const v1::Chat chat = OneMessage("user", "a");
  const PromptEncoder encoder(&Entries(), NotFound("the model has no chat template"), kMaxBytes);
  EXPECT_EQ(encoder.template_name(), "");
  EXPECT_EQ(encoder.tool_call_format("hermes"), "");
  EXPECT_THAT(encoder.EncodeChat(chat, false).status().ToString(),
              HasSubstr("allowed: a prompt, because the model has no chat template"));
  // Clients do not learn the paths of the server.
  absl::StatusOr<ChatTemplate> broken = Template("{% if %}");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("/models/toy"));
  const PromptEncoder other(&Entries(), std::move(broken), kMaxBytes);
  EXPECT_THAT(other.template_problem(), ::testing::Not(HasSubstr("/models")));
  EXPECT_THAT(other.template_problem(), HasSubstr("does not compile"));
}

TEST(PromptEncoderTest, TheOperatorsFormatOfCallsTakesThePlaceOfTheTemplates) {
  const PromptEncoder encoder(&Entries(), Template("{# <tool_call> #}"), kMaxBytes);
  EXPECT_EQ(encoder.template_name(), "chat_template.jinja");
  EXPECT_EQ(encoder.tool_call_format("auto"), "hermes");
  EXPECT_EQ(encoder.tool_call_format("mistral"), "mistral");
  EXPECT_EQ(encoder.tool_call_format("none"), "");
}

}  // namespace
}  // namespace tandem::prompt_encoder_test
