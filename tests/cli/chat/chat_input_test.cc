#include "services/cli/chat/chat_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

// Returns the texts that the lines give, blocks with "block: " before them, and what stays open.
std::vector<std::string> Collect(const std::vector<std::string>& lines) {
  LineCollector collector;
  std::vector<std::string> texts;
  for (const std::string& line : lines) {
    if (const auto text = collector.Add(line)) {
      texts.push_back((text->is_block ? "block: " : "") + text->text);
    }
  }
  if (const auto text = collector.Take()) texts.push_back("open: " + text->text);
  EXPECT_FALSE(collector.is_open());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(LineCollector, ALineIsAText) { EXPECT_EQ(Collect({"a", "", "b\r"}), (Texts{"a", "", "b"})); }

TEST(LineCollector, ABackslashContinuesTheLine) {
  EXPECT_EQ(Collect({"a\\", "b\\", "c", "d"}), (Texts{"a\nb\nc", "d"}));
  EXPECT_EQ(Collect({"a\\"}), Texts{"open: a"});
}

TEST(LineCollector, MarksOpenAndCloseABlock) {
  EXPECT_EQ(Collect({"\"\"\"", "a\\", "", "  b", "\"\"\"", "c"}),
            (Texts{"block: a\\\n\n  b", "c"}));
  EXPECT_EQ(Collect({"\"\"\"a", "b\"\"\""}), Texts{"block: a\nb"});
  EXPECT_EQ(Collect({"  \"\"\"a\"\"\"  "}), Texts{"block: a"});
  EXPECT_EQ(Collect({"\"\"\"\"\"\""}), Texts{"block: "});
  EXPECT_EQ(Collect({"\"\"\"", "a"}), Texts{"open: a"});
  EXPECT_EQ(Collect({"a \"\"\" b"}), Texts{"a \"\"\" b"});
}

TEST(ChatInput, ATextIsAMessage) {
  EXPECT_EQ(std::get<SayToModel>(ParseChatInput({.text = "  hello\nyou  "})).text, "hello\nyou");
  EXPECT_EQ(std::get<SayToModel>(ParseChatInput({.text = "//set"})).text, "/set");
  EXPECT_EQ(std::get<SayToModel>(ParseChatInput({.text = "/set", .is_block = true})).text, "/set");
  EXPECT_TRUE(std::holds_alternative<Nothing>(ParseChatInput({.text = " \t"})));
  EXPECT_TRUE(std::holds_alternative<Nothing>(ParseChatInput({.text = "\n", .is_block = true})));
}

TEST(ChatInput, ASlashBeginsACommand) {
  const auto set = std::get<RunCommand>(ParseChatInput({.text = " /set  top_p   0.5 "}));
  EXPECT_EQ(set.command, ChatCommand::kSet);
  EXPECT_EQ(set.argument, "top_p   0.5");
  EXPECT_EQ(std::get<RunCommand>(ParseChatInput({.text = "/quit"})).command, ChatCommand::kQuit);
}

TEST(ChatInput, BadCommandsSayWhatIsWanted) {
  const auto message = [](const std::string& text) {
    return std::get<BadCommand>(ParseChatInput({.text = text})).message;
  };
  EXPECT_THAT(message("/rety"), HasSubstr("there is no command /rety; did you mean /retry?"));
  EXPECT_THAT(message("/home/me"), HasSubstr("typed with two"));
  EXPECT_EQ(message("/quit now"), "/quit takes no argument");
  EXPECT_EQ(message("/save"), "/save needs an argument: /save FILE");
}

TEST(ChatInput, HelpHasEveryCommand) {
  for (const char* name :
       {"/help", "/set", "/reset", "/stats", "/retry", "/save FILE", "/load FILE", "/quit"}) {
    EXPECT_THAT(ChatHelp(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace tandem::cli
