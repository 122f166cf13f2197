// Tests that prompts are exactly those of transformers. oracle.py made the golden files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/chat/chat_cases.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kFolder = TANDEM_SOURCE_DIR "/tests/chat";
constexpr char kRefuses[] = "the model's chat template refuses the messages: ";

std::vector<std::string> TemplateNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder / "templates")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ChatTemplateGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(ChatTemplateGoldenTest, RendersWhatTransformersRenders) {
  chat_cases::UseUtc();
  const std::string& name = GetParam();
  const Json description = chat_cases::ReadJson(kFolder / "cases.json");
  const Json tokens = chat_cases::ReadJson(kFolder / "tokens.json");
  const Json golden = chat_cases::ReadJson(kFolder / "golden" / (name + ".json"));
  const auto chat = ChatTemplate::Make(
      chat_cases::OneTemplate(chat_cases::ReadText(kFolder / "templates" / (name + ".jinja")),
                              tokens.contains(name) ? tokens[name] : tokens[""]));
  ASSERT_TRUE(chat.ok()) << chat.status();

  for (const auto& [case_name, test_case] : description["cases"].items()) {
    SCOPED_TRACE(case_name);
    const Json& want = golden.at(case_name);
    const auto prompt = chat->Render(chat_cases::InputOf(test_case, description["tools"]));
    if (want.contains("text")) {
      ASSERT_TRUE(prompt.ok()) << prompt.status();
      EXPECT_EQ(*prompt, want["text"].get<std::string>());
      continue;
    }
    ASSERT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument)
        << (prompt.ok() ? *prompt : std::string(prompt.status().message()));
    if (want.contains("raises")) {
      EXPECT_EQ(prompt.status().message(), kRefuses + want["raises"].get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ChatTemplateGoldenTest, testing::ValuesIn(TemplateNames()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace tandem
