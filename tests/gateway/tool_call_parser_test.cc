#include "services/gateway/api/tools/tool_call_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway::tool_call_parser_test {
namespace {

// "content|name(arguments)|name(arguments)".
std::string Parse(std::string_view format, const std::string& text, size_t piece) {
  const auto parser = MakeToolCallParser(format);
  ToolOutput output;
  for (size_t at = 0; at < text.size(); at += piece) parser->Push(text.substr(at, piece), &output);
  parser->Finish(&output);
  std::vector<std::string> names;
  std::vector<std::string> arguments;
  for (const ToolCallDelta& delta : output.calls) {
    if (delta.index == names.size()) {
      EXPECT_FALSE(delta.name.empty());
      names.push_back(delta.name);
      arguments.emplace_back();
    } else {
      EXPECT_TRUE(delta.name.empty());
    }
    arguments.at(delta.index) += delta.arguments;
  }
  EXPECT_EQ(parser->num_calls(), names.size());
  std::string all = output.content;
  for (size_t i = 0; i < names.size(); ++i) all += "|" + names[i] + "(" + arguments[i] + ")";
  return all;
}

// The result must not depend on the pieces.
void Expect(std::string_view format, const std::string& text, const std::string& want) {
  for (const size_t piece : {1, 2, 3, 7, 1000}) {
    EXPECT_EQ(Parse(format, text, piece), want)
        << format << ", pieces of " << piece << ": " << text;
  }
}

TEST(ToolCallParserTest, HermesCallsAreBetweenTags) {
  Expect("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
         "|f({\"x\": 1})");
  Expect(
      "hermes",
      "Let me look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"}<\\\"\"}}</tool_call>\n"
      "<tool_call>\n{\"arguments\": {}, \"name\": \"g\"}\n</tool_call>\n",
      "Let me look.|f({\"a\":\"}<\\\"\"})|g({})");
  Expect("hermes", "no call < here <tool", "no call < here <tool");
  Expect("hermes", "a  b\n", "a  b\n");
}

TEST(ToolCallParserTest, WhatIsNoCallStaysText) {
  Expect("hermes", "<tool_call>nonsense</tool_call> more", "<tool_call>nonsense</tool_call> more");
  Expect("hermes", "<tool_call>{\"x\": 1}</tool_call>", "<tool_call>{\"x\": 1}</tool_call>");
  Expect("hermes", "<tool_call>{\"name\": 7}", "<tool_call>{\"name\": 7}");
  Expect("hermes", "<tool_call>", "<tool_call>");
  Expect("llama3_json", "{\"answer\": 42} and more", "{\"answer\": 42} and more");
  Expect("llama3_json", "Hello {\"name\": \"f\"}", "Hello {\"name\": \"f\"}");
  Expect("llama3_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)");
  Expect("llama3_json", "<|py", "<|py");
  Expect("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]");
  Expect("mistral", "[TOOL_CALLS] nothing", "[TOOL_CALLS]nothing");
  Expect("mistral", "[TOOL_CALLS][{\"x\": 1}]", "[TOOL_CALLS][{\"x\": 1}]");
  EXPECT_EQ(MakeToolCallParser(""), nullptr);
  EXPECT_EQ(MakeToolCallParser("unknown"), nullptr);
}

TEST(ToolCallParserTest, LlamaCallsAreTheWholeOutput) {
  Expect("llama3_json", "{\"name\": \"f\", \"parameters\": {\"x\": [1, {\"y\": null}]}}",
         "|f({\"x\": [1, {\"y\": null}]})");
  Expect("llama3_json", " <|python_tag|> {\"name\": \"f\", \"parameters\": {}}", "|f({})");
  Expect("llama3_json",
         "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
         "{\"name\": \"g\", \"parameters\": {}}",
         "|f({})|g({})");
  Expect("llama3_json", "{\"name\": \"f\", \"parameters\": {}} Done.", " Done.|f({})");
}

TEST(ToolCallParserTest, MistralCallsFollowTheirMark) {
  Expect("mistral",
         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}}, "
         "{\"name\": \"g\", \"arguments\": {}}]",
         "|f({\"x\": 1})|g({})");
  Expect("mistral", "Sure.\n[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g{\"y\": \"[ARGS]\"}",
         "Sure.|f({\"x\": 1})|g({\"y\": \"[ARGS]\"})");
  Expect("mistral", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}", "|f({})");
  Expect("mistral", "[TOOL_CALLS]{\"name\": \"f\"}", "|f({})");
  EXPECT_TRUE(WantsShortCallIds("mistral"));
  EXPECT_FALSE(WantsShortCallIds("hermes"));
}

TEST(ToolCallParserTest, ArgumentsComeAsSoonAsTheNameIsKnown) {
  const auto parser = MakeToolCallParser("hermes");
  ToolOutput output;
  parser->Push("<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Pa", &output);
  ASSERT_EQ(output.calls.size(), 1u);
  EXPECT_EQ(output.calls[0].name, "f");
  EXPECT_EQ(output.calls[0].arguments, "{\"city\": \"Pa");
}

TEST(ToolCallParserTest, ArgumentsThatAreATextOrNullBecomeAnObject) {
  Expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
         "|f({\"x\": 1})");
  Expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "|f({})");
}

TEST(ToolCallParserTest, ACallThatIsCutOffStaysAsItIs) {
  Expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1", "|f({\"x\": 1)");
  Expect("llama3_json", "{\"name\": \"f\", \"param", "|f()");
  Expect("mistral", "[TOOL_CALLS]f{\"x\"", "|f({\"x\")");
  Expect("mistral", "[TOOL_CALLS]unfinished", "[TOOL_CALLS]unfinished");
}

}  // namespace
}  // namespace tandem::gateway::tool_call_parser_test
