#include "common/chat/chat_messages.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Names of a message's reasoning. Templates read the first or the second.
constexpr std::array kReasoningKeys = {"reasoning_content", "thinking", "reasoning"};

absl::Status Wants(const std::string& place, const std::string& what, const OrderedJson& got) {
  return InvalidArgument(absl::StrCat(place, ": want ", what, ", got ", got.type_name()));
}

// A name or type that a client sent, cut for a message.
std::string Quoted(const std::string& text) {
  constexpr size_t kMost = 40;
  return absl::StrCat("\"", text.size() <= kMost ? text : text.substr(0, kMost) + "…", "\"");
}

absl::StatusOr<std::string> JoinParts(const OrderedJson& parts, const std::string& place) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = absl::StrCat(place, "[", i, "]");
    const OrderedJson& part = parts[i];
    if (!part.is_object()) return Wants(here, "an object with a type", part);
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) {
      return InvalidArgument(absl::StrCat(here, ".type: want \"text\""));
    }
    if (*type != "text") {
      return InvalidArgument(absl::StrCat(here, ".type: got ", Quoted(type->get<std::string>()),
                                          "; only \"text\" is supported"));
    }
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) {
      return InvalidArgument(absl::StrCat(here, ".text: want a string"));
    }
    if (i > 0) joined += '\n';
    joined += text->get_ref<const std::string&>();
  }
  return joined;
}

// The place of a call's arguments: in OpenAI's shape under "function", in others beside the name.
OrderedJson* ArgumentsOf(OrderedJson& call) {
  if (!call.is_object()) return nullptr;
  const auto function = call.find("function");
  OrderedJson& holder = function != call.end() && function->is_object() ? *function : call;
  const auto arguments = holder.find("arguments");
  return arguments == holder.end() ? nullptr : &*arguments;
}

void ParseArguments(OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (OrderedJson& call : *calls) {
    OrderedJson* arguments = ArgumentsOf(call);
    if (arguments == nullptr || !arguments->is_string()) continue;
    const std::string& text = arguments->get_ref<const std::string&>();
    OrderedJson parsed =
        OrderedJson::parse(text.empty() ? "{}" : text, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

void AliasReasoning(OrderedJson& message) {
  for (const char* key : kReasoningKeys) {
    const auto found = message.find(key);
    if (found == message.end()) continue;
    const OrderedJson reasoning = *found;
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

absl::Status CheckFields(const OrderedJson& message, const std::string& place) {
  const auto role = message.find("role");
  if (role == message.end()) return InvalidArgument(place + ": want a role");
  if (!role->is_string()) return Wants(place + ".role", "a string", *role);
  for (const char* key : {"name", "tool_call_id"}) {
    const auto found = message.find(key);
    if (found != message.end() && !found->is_string()) {
      return Wants(absl::StrCat(place, ".", key), "a string", *found);
    }
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return absl::OkStatus();
  if (!calls->is_array()) return Wants(place + ".tool_calls", "a list", *calls);
  for (size_t i = 0; i < calls->size(); ++i) {
    if (!(*calls)[i].is_object()) {
      return Wants(absl::StrCat(place, ".tool_calls[", i, "]"), "an object", (*calls)[i]);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OrderedJson> NormalizeMessage(const OrderedJson& message, const std::string& place,
                                             ToolArguments arguments) {
  if (!message.is_object()) return Wants(place, "an object with a role and a content", message);
  OrderedJson result = OrderedJson::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) result[key] = value;
  }
  TANDEM_RETURN_IF_ERROR(CheckFields(result, place));
  const auto content = result.find("content");
  if (content != result.end() && content->is_array()) {
    TANDEM_ASSIGN_OR_RETURN(*content, JoinParts(*content, place + ".content"));
  } else if (content != result.end() && !content->is_string()) {
    return Wants(place + ".content", "a string or a list of text parts", *content);
  }
  if (arguments == ToolArguments::kObjects) ParseArguments(result);
  AliasReasoning(result);
  return result;
}

}  // namespace

absl::StatusOr<OrderedJson> NormalizeMessages(const OrderedJson& messages,
                                              ToolArguments arguments) {
  if (!messages.is_array()) return Wants("messages", "a list", messages);
  if (messages.empty()) return InvalidArgument("messages: want at least one message");
  OrderedJson result = OrderedJson::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string place = absl::StrCat("messages[", i, "]");
    TANDEM_ASSIGN_OR_RETURN(OrderedJson message, NormalizeMessage(messages[i], place, arguments));
    result.push_back(std::move(message));
  }
  return result;
}

bool HasTextArguments(const OrderedJson& messages) {
  if (!messages.is_array()) return false;
  for (const OrderedJson& message : messages) {
    if (!message.is_object()) continue;
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (const OrderedJson& call : *calls) {
      OrderedJson copy = call;
      const OrderedJson* arguments = ArgumentsOf(copy);
      if (arguments != nullptr && arguments->is_string()) return true;
    }
  }
  return false;
}

absl::StatusOr<OrderedJson> NormalizeTools(const OrderedJson& tools) {
  if (tools.is_null()) return OrderedJson();
  if (!tools.is_array()) return Wants("tools", "a list", tools);
  if (tools.empty()) return OrderedJson();
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) return Wants(absl::StrCat("tools[", i, "]"), "an object", tools[i]);
  }
  return tools;
}

}  // namespace tandem
