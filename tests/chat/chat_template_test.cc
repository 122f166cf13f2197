// Tests where templates and special tokens are found, which messages are taken, and what errors
// say.
#include "common/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/chat/chat_cases.h"

namespace tandem {
namespace {

using chat_cases::Hello;
using chat_cases::OneTemplate;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

class ChatTemplateTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("tandem_chat_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  std::filesystem::path folder_;
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Renders, and returns the prompt or the error.
std::string Render(const ChatTemplate& chat, const ChatInput& input = Hello()) {
  const auto prompt = chat.Render(input);
  return prompt.ok() ? *prompt : Message(prompt.status());
}

std::string RenderSource(const std::string& source, const ChatInput& input = Hello()) {
  const auto chat = ChatTemplate::Make(OneTemplate(source));
  return chat.ok() ? Render(*chat, input) : Message(chat.status());
}

TEST_F(ChatTemplateTest, TheConfigurationHasATemplateAndTokensAsTextsOrObjects) {
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
            "unk_token": null, "image_token": "<img>", "add_bos_token": true,
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }})"
        R"({{ image_token }}{{ pad_token }}{{ unk_token is defined }}"})");
  Write("special_tokens_map.json", R"({"pad_token": "<pad>", "bos_token": "<other>"})");
  const auto chat = ChatTemplate::Load(folder_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(Render(*chat), "<s>Hello.</s><img><pad>False");
  EXPECT_EQ(chat->bos_token(), "<s>");
  EXPECT_EQ(chat->eos_token(), "</s>");
  EXPECT_THAT(chat->place(), HasSubstr("tokenizer_config.json: chat_template"));
}

TEST_F(ChatTemplateTest, AFileOfItsOwnIsPreferredAndAnOverrideMore) {
  Write("tokenizer_config.json", R"({"chat_template": "configuration"})");
  EXPECT_EQ(Render(ChatTemplate::Load(folder_).value()), "configuration");
  Write("chat_template.jinja", "file");
  EXPECT_EQ(Render(ChatTemplate::Load(folder_).value()), "file");
  Write("other.jinja", "other {{ messages[0].role }}\n");
  EXPECT_EQ(Render(ChatTemplate::Load(folder_, folder_ / "other.jinja").value()), "other user");
}

TEST_F(ChatTemplateTest, RequestsWithToolsTakeTheTemplateForTools) {
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain {{ tools is none }}"},
                              {"name": "tool_use", "template": "tools {{ tools | length }}"}]})");
  ChatInput with_tools = Hello();
  with_tools.tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  ChatInput empty_tools = Hello();
  empty_tools.tools = Json::array();
  const auto chat = ChatTemplate::Load(folder_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(Render(*chat), "plain True");
  EXPECT_EQ(Render(*chat, empty_tools), "plain True");
  EXPECT_EQ(Render(*chat, with_tools), "tools 1");
  Write("chat_template.jinja", "file");
  EXPECT_EQ(Render(ChatTemplate::Load(folder_).value(), with_tools), "file");
  Write("additional_chat_templates/tool_use.jinja", "file for tools");
  EXPECT_EQ(Render(ChatTemplate::Load(folder_).value(), with_tools), "file for tools");
}

TEST_F(ChatTemplateTest, AModelWithoutATemplateSaysWhatToDo) {
  for (const char* config : {"", "{}", R"({"chat_template": null})"}) {
    if (*config != '\0') Write("tokenizer_config.json", config);
    const auto chat = ChatTemplate::Load(folder_);
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Message(chat.status()), HasSubstr("has no chat template"));
    EXPECT_THAT(Message(chat.status()), HasSubstr("--chat-template FILE"));
  }
}

TEST_F(ChatTemplateTest, BadFilesAreRefusedByName) {
  const auto refused = [&](const std::string& config) {
    Write("tokenizer_config.json", config);
    const auto chat = ChatTemplate::Load(folder_);
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument) << config;
    EXPECT_THAT(Message(chat.status()), HasSubstr("tokenizer_config.json")) << config;
    return Message(chat.status());
  };
  refused("no JSON");
  refused("[]");
  refused(R"({"chat_template": 7})");
  refused(R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THAT(refused(R"({"chat_template": [{"name": "rag", "template": ""}]})"),
              HasSubstr("named \"default\", got rag"));
  EXPECT_THAT(Message(ChatTemplate::Load(folder_, folder_ / "missing").status()),
              HasSubstr("missing: No such file"));
}

TEST_F(ChatTemplateTest, ATemplateThatDoesNotCompileIsRefusedWithItsLine) {
  Write("chat_template.jinja", "line one\nline two\n{% for x in %}\n");
  const auto chat = ChatTemplate::Load(folder_);
  EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(chat.status()), HasSubstr("chat_template.jinja: "));
  EXPECT_THAT(Message(chat.status()), HasSubstr("does not compile at line 3"));
  EXPECT_THAT(RenderSource("{% if x %}"), HasSubstr("does not compile at line 1"));
  EXPECT_THAT(RenderSource("\xff"), HasSubstr("not UTF-8"));
}

TEST_F(ChatTemplateTest, FailuresOfATemplateHaveTheirLineAndNoPath) {
  EXPECT_EQ(RenderSource("a\n\n{{ messages[0].content.nothing.more }}"),
            "the model's chat template at line 3 does not fit these messages or tools: undefined "
            "value");
  EXPECT_THAT(RenderSource("\n{{ 'text'.nosuch() }}"), HasSubstr("line 2"));
  EXPECT_THAT(RenderSource("{{ 1 | nosuch }}"), HasSubstr("nosuch"));
  EXPECT_EQ(RenderSource("{{ raise_exception('No tools: ' ~ 7) }}"),
            "the model's chat template refuses the messages: No tools: 7");
  EXPECT_EQ(RenderSource("{% macro f() %}{{ raise_exception('inside') }}{% endmacro %}{{ f() }}"),
            "the model's chat template refuses the messages: inside");
}

TEST_F(ChatTemplateTest, MessagesOfAWrongShapeAreRefusedWithTheirPlace) {
  const auto refused = [](const std::string& messages) {
    ChatInput input;
    input.messages = Json::parse(messages);
    const auto prompt = ChatTemplate::Make(OneTemplate("x")).value().Render(input);
    EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument) << messages;
    return Message(prompt.status());
  };
  EXPECT_EQ(refused("{}"), "messages: want a list, got object");
  EXPECT_EQ(refused("[]"), "messages: want at least one message");
  EXPECT_EQ(refused("[7]"), "messages[0]: want an object with a role and a content, got number");
  EXPECT_EQ(refused(R"([{"content": "x"}])"), "messages[0]: want a role");
  EXPECT_EQ(refused(R"([{"role": 1}])"), "messages[0].role: want a string, got number");
  EXPECT_EQ(refused(R"([{"role": "user", "content": 5}])"),
            "messages[0].content: want a string or a list of text parts, got number");
  EXPECT_EQ(refused(R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
            "messages[0].content[0].type: got \"image_url\"; only \"text\" is supported");
  EXPECT_EQ(refused(R"([{"role": "user", "content": [{"type": "text"}]}])"),
            "messages[0].content[0].text: want a string");
  EXPECT_EQ(refused(R"([{"role": "user", "content": "x", "tool_calls": {}}])"),
            "messages[0].tool_calls: want a list, got object");
  ChatInput input = Hello();
  input.tools = 7;
  EXPECT_EQ(RenderSource("x", input), "tools: want a list, got number");
  input = Hello();
  input.kwargs = Json::array();
  EXPECT_EQ(RenderSource("x", input), "chat_template_kwargs: want an object, got array");
  input = Hello();
  input.messages[0]["content"] = "\xff";
  EXPECT_EQ(RenderSource("x", input), "the messages cannot be rendered: a text is not UTF-8");
}

TEST_F(ChatTemplateTest, NullFieldsAreMissingAndEmptyContentsStay) {
  ChatInput input;
  input.messages = Json::parse(
      R"([{"role": "assistant", "content": null, "tool_calls": null},
          {"role": "user", "content": ""}])");
  EXPECT_EQ(RenderSource("{{ messages | tojson }}", input),
            R"([{"role": "assistant"}, {"role": "user", "content": ""}])");
}

TEST_F(ChatTemplateTest, ArgumentsAreObjectsUnlessTheTemplateWantsTexts) {
  ChatInput input;
  input.messages = Json::parse(
      R"([{"role": "assistant", "tool_calls": [
          {"function": {"name": "f", "arguments": "{\"b\":1, \"a\":2}"}}]}])");
  const std::string arguments = "messages[0].tool_calls[0].function.arguments";
  EXPECT_EQ(RenderSource("{{ " + arguments + " | tojson }}", input), R"({"b": 1, "a": 2})");
  EXPECT_EQ(RenderSource("{{ 'x' + " + arguments + " }}", input), R"(x{"b":1, "a":2})");
}

TEST_F(ChatTemplateTest, VariablesOfTheCallerHideTokensButNotMessages) {
  TemplateFiles files = OneTemplate(
      "{{ bos_token }} {{ flavor }} {{ messages | length }} {{ add_generation_prompt }}",
      {{"bos_token", "<s>"}});
  ChatInput input = Hello();
  input.kwargs = {
      {"bos_token", "<b>"}, {"flavor", 2}, {"messages", "none"}, {"add_generation_prompt", "none"}};
  input.add_generation_prompt = false;
  EXPECT_EQ(Render(ChatTemplate::Make(files).value(), input), "<b> 2 1 False");
}

TEST_F(ChatTemplateTest, TheBeginOfTextIsFoundInThePrompt) {
  const auto chat = ChatTemplate::Make(OneTemplate("x", {{"bos_token", "<s>"}})).value();
  EXPECT_TRUE(chat.BeginsWithBos("<s>"));
  EXPECT_TRUE(chat.BeginsWithBos("<s>[INST]"));
  EXPECT_FALSE(chat.BeginsWithBos(" <s>"));
  EXPECT_FALSE(chat.BeginsWithBos("<s"));
  EXPECT_FALSE(ChatTemplate::Make(OneTemplate("x")).value().BeginsWithBos("<s>"));
}

TEST_F(ChatTemplateTest, GenerationBlocksPrintWhatTheyHold) {
  EXPECT_EQ(WithoutGenerationTags("a{%- generation -%}b{% endgeneration %}{%+ if x %}"),
            "a{%- with -%}b{% endwith %}{%+ if x %}");
  EXPECT_EQ(WithoutGenerationTags("{% generation x %}{% generations %}{{ generation }}{%"),
            "{% generation x %}{% generations %}{{ generation }}{%");
  EXPECT_EQ(RenderSource("{% set x = 1 %}\n{%generation%}\n{% set x = 2 %}in{{ x }}\n"
                         "{%endgeneration%}\n{{ x }}"),
            "in2\n1");
}

TEST_F(ChatTemplateTest, TimeIsThatOfTheRequestInTheZoneOfTheProcess) {
  chat_cases::UseUtc();
  ChatInput input = Hello();
  input.now = chat_cases::kNow;
  EXPECT_EQ(RenderSource("{{ strftime_now('%Y-%m-%d %H:%M') }}", input), "2025-07-01 09:05");
  EXPECT_EQ(RenderSource("[{{ strftime_now('') }}]", input), "[]");
  EXPECT_THAT(RenderSource("{{ strftime_now('%c' * 1000) }}", input), HasSubstr("too long"));
  EXPECT_THAT(RenderSource("{{ strftime_now('%Y') }}"), Not(HasSubstr("chat template")));
}

TEST_F(ChatTemplateTest, SeveralThreadsRenderAtATime) {
  const auto chat = ChatTemplate::Make(
      OneTemplate("{% for i in range(200) %}{{ messages[0].content ~ i }}{% endfor %}"));
  ASSERT_TRUE(chat.ok());
  const std::string want = Render(*chat);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(Render(*chat), want);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ToolCallFormatTest, IsWhatTheTemplatesOfTheFamiliesShow) {
  const auto format = [](const std::string& family) {
    const std::string file = family + ".jinja";
    const std::string source = chat_cases::ReadText(std::filesystem::path(TANDEM_SOURCE_DIR) /
                                                    "tests/chat/templates" / file);
    EXPECT_FALSE(source.empty()) << family;
    return std::string(DetectToolCallFormat(source));
  };
  for (const char* family : {"hermes", "qwen2_5", "qwen3"}) EXPECT_EQ(format(family), "hermes");
  for (const char* family : {"llama3_1", "llama3_2"}) EXPECT_EQ(format(family), "llama3_json");
  for (const char* family : {"mistral_v3", "mistral_tekken"}) EXPECT_EQ(format(family), "mistral");
  for (const char* family :
       {"chatml", "gemma", "llama3", "phi4_mini", "granite", "command_r_tools"}) {
    EXPECT_EQ(format(family), "") << family;
  }
  EXPECT_EQ(DetectToolCallFormat("<tool_call>\n<function=name>"), "");
}

}  // namespace
}  // namespace tandem
