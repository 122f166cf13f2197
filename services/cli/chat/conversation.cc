#include "services/cli/chat/conversation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem::cli {

namespace {

constexpr char kSystemRole[] = "system";
constexpr char kUserRole[] = "user";
constexpr char kAssistantRole[] = "assistant";

struct LoadedMessage {
  std::string role;
  std::string content;
};

absl::StatusOr<LoadedMessage> ReadMessage(const nlohmann::json& json, size_t number) {
  const std::string name = absl::StrCat("message ", number);
  if (!json.is_object()) return InvalidArgument(name + ": want an object with role and content");
  for (const auto& [key, value] : json.items()) {
    if (key != "role" && key != "content") {
      return InvalidArgument(name + ": got the field " + key + ", allowed: role and content");
    }
    if (!value.is_string()) return InvalidArgument(name + ": " + key + " must be a text");
  }
  if (!json.contains("role") || !json.contains("content")) {
    return InvalidArgument(name + ": role and content are needed");
  }
  return LoadedMessage{json["role"].get<std::string>(), json["content"].get<std::string>()};
}

}  // namespace

void Conversation::Say(std::string text) {
  if (!messages_.empty() && !messages_.back().is_answer) messages_.pop_back();
  messages_.push_back({false, std::move(text)});
}

void Conversation::Answer(std::string text) {
  if (!text.empty()) messages_.push_back({true, std::move(text)});
}

void Conversation::TakeAnswerBack() {
  if (!messages_.empty() && messages_.back().is_answer) messages_.pop_back();
}

bool Conversation::ForgetOldest() {
  const size_t num_oldest = messages_.size() > 1 && messages_[1].is_answer ? 2 : 1;
  if (messages_.size() <= num_oldest) return false;
  messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(num_oldest));
  return true;
}

v1::Chat Conversation::ToChat() const {
  v1::Chat chat;
  const auto add = [&chat](const char* role, const std::string& text) {
    v1::ChatMessage* message = chat.add_messages();
    message->set_role(role);
    message->set_content(text);
  };
  if (!system_.empty()) add(kSystemRole, system_);
  for (const Message& message : messages_) {
    add(message.is_answer ? kAssistantRole : kUserRole, message.text);
  }
  return chat;
}

std::string Conversation::ToJson() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const v1::Chat chat = ToChat();
  for (const v1::ChatMessage& message : chat.messages()) {
    list.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  // Typed text need not be UTF-8.
  return list.dump(2, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<Conversation> Conversation::FromJson(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("messages")) {
    nlohmann::json list = std::move(json["messages"]);
    json = std::move(list);
  }
  if (!json.is_array()) return InvalidArgument("want JSON: a list of messages");
  Conversation conversation;
  for (size_t i = 0; i < json.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(LoadedMessage message, ReadMessage(json[i], i + 1));
    if (i == 0 && message.role == kSystemRole) {
      conversation.system_ = std::move(message.content);
      continue;
    }
    const bool wants_answer =
        !conversation.messages_.empty() && !conversation.messages_.back().is_answer;
    const char* wanted = wants_answer ? kAssistantRole : kUserRole;
    if (message.role != wanted) {
      return InvalidArgument(absl::StrCat("message ", i + 1, ": got the role \"", message.role,
                                          "\", want \"", wanted,
                                          "\": after an optional message of the system, user and "
                                          "assistant take turns"));
    }
    conversation.messages_.push_back({wants_answer, std::move(message.content)});
  }
  return conversation;
}

}  // namespace tandem::cli
