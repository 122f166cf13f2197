#include "services/gateway/api/tools/tool_call_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway::tool_call_parser_test {
namespace {

const ToolNames kTools = {"f", "g"};

// "content|name(arguments)|name(arguments)", and " …" if a call is not complete.
std::string Parse(std::string_view format, const std::string& text, size_t piece) {
  const auto parser = MakeToolCallParser(format, &kTools);
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
  std::string all = output.content;
  for (size_t i = 0; i < names.size(); ++i) all += "|" + names[i] + "(" + arguments[i] + ")";
  if (!names.empty() && !parser->has_complete_calls()) all += " …";
  EXPECT_TRUE(!names.empty() || all == text) << "an output without a call is content as it is";
  EXPECT_TRUE(!names.empty() || !parser->has_complete_calls());
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

// The output stays as it is.
void ExpectText(std::string_view format, const std::string& text) { Expect(format, text, text); }

TEST(ToolCallParserTest, WhatIsNoCallStaysText) {
  ExpectText("hermes", "<tool_call>nonsense</tool_call> more");
  ExpectText("hermes", " \n<tool_call>{\"x\": 1}</tool_call>");
  ExpectText("hermes", "<tool_call>{\"name\": 7}");
  ExpectText("hermes", "<tool_call>{\"name\": \"f\"");
  ExpectText("hermes", "<tool_call>");
  ExpectText("hermes", "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>");
  ExpectText("hermes", "<tool_call>{\"name\": \"f\", oops");
  ExpectText("hermes", "a" + std::string(300, '\n') + "b");
  ExpectText("llama3_json", "{\"answer\": 42} and more");
  ExpectText("llama3_json", "{\"name\": \"Alice\", \"age\": 30}");
  ExpectText("llama3_json", " Hello {\"name\": \"f\"}");
  ExpectText("llama3_json", " <|python_tag|> print(1)");
  ExpectText("llama3_json", "<|py");
  ExpectText("llama3_json", "  ");
  ExpectText("llama3_json", std::string(300, ' '));
  ExpectText("mistral", "[TOOL_CALLS]");
  ExpectText("mistral", "a \n[TOOL_CALLS] nothing");
  ExpectText("mistral", "[TOOL_CALLS] [{\"x\": 1}]");
  ExpectText("mistral", "[TOOL_CALLS][ nothing here");
  ExpectText("mistral", "[TOOL_CALLS][ARGS]{\"x\":1}");
  ExpectText("mistral", "[TOOL_CALLS] Sorry, I cannot {do} that");
  ExpectText("mistral", "[TOOL_CALLS]unknown{}");
  ExpectText("mistral", "[TOOL_CALLS]" + std::string(65, 'f') + "{}");
  ExpectText("mistral", "[TOOL_CALLS]" + std::string(300, ' ') + "f{}");
  EXPECT_EQ(MakeToolCallParser("", &kTools), nullptr);
  EXPECT_EQ(MakeToolCallParser("unknown", &kTools), nullptr);
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
  const auto parser = MakeToolCallParser("hermes", &kTools);
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
  Expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1", "|f({\"x\": 1) …");
  Expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}} and more", " and more|f({})");
  Expect("llama3_json", "{\"name\": \"f\", \"parameters\": {", "|f({) …");
  Expect("llama3_json", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\"",
         "{\"name\": \"g\"|f({})");
  Expect("mistral", "[TOOL_CALLS]f{\"x\"", "|f({\"x\") …");
  ExpectText("mistral", "[TOOL_CALLS]unfinished");
  Expect("mistral", "[TOOL_CALLS][{\"name\": \"f\"}, ", "|f({})");
}

TEST(ToolCallParserTest, ArgumentsThatComeTwiceBreakTheCallOff) {
  Expect("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1},\"arguments\":{\"b\":2}}",
         "{\"b\":2}}|f({\"a\":1}) …");
}

}  // namespace
}  // namespace tandem::gateway::tool_call_parser_test
