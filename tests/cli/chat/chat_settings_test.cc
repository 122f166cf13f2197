#include "services/cli/chat/chat_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

class ChatSettingsTest : public ::testing::Test {
 protected:
  ChatSettingsTest() {
    served_.set_max_draft_length(16);
    served_.set_max_tree_nodes(16);
    for (const char* name : {"small", "model", "suffix"}) served_.add_drafters(name);
  }

  std::string Error(const std::string& name, const std::string& value) {
    const absl::Status status = ChangeSetting(name, value, served_, &settings_);
    return std::string(status.message());
  }
  std::string Shown(const std::string& name) {
    const auto line = ShowSetting(name, settings_);
    return line.ok() ? line->substr(line->find_last_of(' ') + 1) : "";
  }

  v1::ServerInfo served_;
  ChatSettings settings_;
};

TEST_F(ChatSettingsTest, ChangeTheRequest) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"temperature", "0.5"},
                                                        {"top_p", "0.9"},
                                                        {"top_k", "40"},
                                                        {"min_p", "0.05"},
                                                        {"repetition_penalty", "1.1"},
                                                        {"presence_penalty", "-1"},
                                                        {"frequency_penalty", "2"},
                                                        {"seed", "18446744073709551615"},
                                                        {"max_tokens", "12"},
                                                        {"drafter", "suffix"},
                                                        {"draft_length", "16"},
                                                        {"max_tree_nodes", "0"},
                                                        {"reproducible", "false"},
                                                        {"colors", "never"}}) {
    EXPECT_EQ(Shown(name), "default\n") << name;
    EXPECT_EQ(Error(name, value), "");
    EXPECT_EQ(Shown(name), value + "\n") << name;
    EXPECT_THAT(ListSettings(settings_), HasSubstr(value));
  }
  EXPECT_EQ(settings_.request.sampling_params().seed(), 18446744073709551615U);
  EXPECT_FALSE(settings_.request.speculation().reproducible());
  EXPECT_EQ(Error("temperature", "default"), "");
  EXPECT_FALSE(settings_.request.sampling_params().has_temperature());
}

TEST_F(ChatSettingsTest, TextsCanHaveSeveralWords) {
  EXPECT_EQ(Error("system", "You are a king."), "");
  EXPECT_EQ(settings_.system, "You are a king.");
  EXPECT_EQ(Error("template_kwargs", R"({"enable_thinking": false})"), "");
  EXPECT_THAT(Error("template_kwargs", "[3]"), HasSubstr("allowed: a JSON object"));
  EXPECT_EQ(Error("system", "default"), "");
  EXPECT_EQ(settings_.system, "");
}

TEST_F(ChatSettingsTest, BadValuesGetTheAllowedOnes) {
  EXPECT_EQ(Error("temperature", "-1"),
            "temperature: got \"-1\", allowed: a number from 0 to 1000000");
  EXPECT_THAT(Error("top_p", "0"), HasSubstr("allowed: a number above 0 and up to 1"));
  EXPECT_THAT(Error("draft_length", "17"), HasSubstr("from 0 to 16"));
  EXPECT_THAT(Error("reproducible", "perhaps"), HasSubstr("allowed: true or false"));
  EXPECT_THAT(Error("colors", "red"), HasSubstr("allowed: auto, always or never"));
  EXPECT_THAT(Error("drafter", "sufix"), HasSubstr("allowed: none, small, model, suffix, or "
                                                   "default for the server's choice; did you mean "
                                                   "suffix?"));
  EXPECT_THAT(Error("temprature", "1"), HasSubstr("did you mean temperature?"));
  EXPECT_EQ(settings_.request.ByteSizeLong(), v1::GenerateRequest().ByteSizeLong());
}

TEST_F(ChatSettingsTest, NoneTurnsDraftsOff) {
  EXPECT_EQ(Error("drafter", "none"), "");
  EXPECT_FALSE(settings_.request.speculation().enabled());
  EXPECT_EQ(Shown("drafter"), "none\n");
  EXPECT_EQ(Error("drafter", "model"), "");
  EXPECT_FALSE(settings_.request.speculation().has_enabled());
  EXPECT_EQ(settings_.request.speculation().drafter(), "model");
}

}  // namespace
}  // namespace tandem::cli
