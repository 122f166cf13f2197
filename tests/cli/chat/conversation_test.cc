#include "services/cli/chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

// Returns "role: text|role: text".
std::string Messages(const Conversation& conversation) {
  std::string text;
  const v1::Chat chat = conversation.ToChat();
  for (const v1::ChatMessage& message : chat.messages()) {
    text += (text.empty() ? "" : "|") + message.role() + ": " + message.content();
  }
  return text;
}

Conversation Talk(int turns) {
  Conversation conversation;
  for (int i = 1; i <= turns; ++i) {
    conversation.Say("q" + std::to_string(i));
    conversation.Answer("a" + std::to_string(i));
  }
  return conversation;
}

TEST(Conversation, BeginsWithTheMessageOfTheSystem) {
  Conversation conversation = Talk(1);
  conversation.SetSystem("Be brief.");
  EXPECT_EQ(Messages(conversation), "system: Be brief.|user: q1|assistant: a1");
  conversation.Reset();
  EXPECT_EQ(Messages(conversation), "system: Be brief.");
}

TEST(Conversation, ReplacesAMessageThatWasNotAnswered) {
  Conversation conversation = Talk(1);
  conversation.Say("q2");
  conversation.Answer("");
  conversation.Say("q3");
  EXPECT_EQ(Messages(conversation), "user: q1|assistant: a1|user: q3");
}

TEST(Conversation, TakesTheLastAnswerBack) {
  Conversation conversation = Talk(2);
  conversation.TakeAnswerBack();
  EXPECT_EQ(Messages(conversation), "user: q1|assistant: a1|user: q2");
  conversation.TakeAnswerBack();
  EXPECT_TRUE(conversation.has_question());
  EXPECT_EQ(Messages(conversation), "user: q1|assistant: a1|user: q2");
  EXPECT_FALSE(Conversation().has_question());
}

TEST(Conversation, ForgetsTheOldestMessageWithItsAnswer) {
  Conversation conversation = Talk(2);
  conversation.Say("q3");
  EXPECT_TRUE(conversation.ForgetOldest());
  EXPECT_EQ(Messages(conversation), "user: q2|assistant: a2|user: q3");
  EXPECT_TRUE(conversation.ForgetOldest());
  EXPECT_FALSE(conversation.ForgetOldest());
  EXPECT_EQ(Messages(conversation), "user: q3");
}

TEST(Conversation, ComesBackFromJson) {
  Conversation conversation = Talk(2);
  conversation.SetSystem("A \"quote\"\nand more");
  conversation.Say("q3");
  const auto loaded = Conversation::FromJson(conversation.ToJson());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(Messages(*loaded), Messages(conversation));
  const auto of_request =
      Conversation::FromJson(R"({"model": "m", "messages": [{"role": "user", "content": "x"}]})");
  ASSERT_TRUE(of_request.ok()) << of_request.status();
  EXPECT_EQ(Messages(*of_request), "user: x");
}

TEST(Conversation, NamesWhatIsWrongInJson) {
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"{", "want JSON"},
      {"3", "want JSON"},
      {R"([3])", "message 1: want an object"},
      {R"([{"role": "user"}])", "message 1: role and content are needed"},
      {R"([{"role": "user", "content": []}])", "message 1: content must be a text"},
      {R"([{"role": "user", "content": "", "tool_calls": []}])", "got the field tool_calls"},
      {R"([{"role": "assistant", "content": ""}])", "got the role \"assistant\", want \"user\""},
      {R"([{"role": "user", "content": ""}, {"role": "system", "content": ""}])",
       "message 2: got the role \"system\", want \"assistant\""},
  };
  for (const auto& [json, message] : kCases) {
    const auto loaded = Conversation::FromJson(json);
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(message)) << json;
  }
}

}  // namespace
}  // namespace tandem::cli
