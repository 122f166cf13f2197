#include "services/router/request/chat_input.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Refuses JSON that would take long to read. The parser compares a key with all keys before it in
// its object. Texts that are no JSON may be counted wrongly: the parser refuses them.
absl::Status CheckShape(const std::string& field, std::string_view text) {
  std::vector<int> members(1, 0);  // for each level: the members of the object or list that is open
  int values = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') members.push_back(0);
    if ((c == ']' || c == '}') && members.size() > 1) members.pop_back();
    const bool is_value = c == ',' || c == '[' || c == '{';
    if (!is_value) continue;
    const bool is_wide = ++members.back() > kMaxChatJsonMembers;
    if (is_wide || ++values > kMaxChatJsonValues || members.size() - 1 > kMaxChatJsonDepth) {
      return InvalidArgument(absl::StrCat(field, ": got larger JSON, allowed: at most ",
                                          kMaxChatJsonDepth, " levels, ", kMaxChatJsonMembers,
                                          " members of an object or a list, and ",
                                          kMaxChatJsonValues, " values"));
    }
  }
  return absl::OkStatus();
}

// Returns null for an empty text.
absl::StatusOr<OrderedJson> ParseField(const char* field, const std::string& text,
                                       OrderedJson::value_t want, const char* allowed) {
  if (text.empty()) return OrderedJson();
  const auto refused = [&](const char* got) {
    return InvalidArgument(absl::StrCat(field, ": got ", got, ", allowed: ", allowed));
  };
  TANDEM_RETURN_IF_ERROR(CheckShape(field, text));
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refused("no valid JSON");
  if (json.type() != want) return refused(json.type_name());
  return json;
}

OrderedJson ToJson(const v1::ToolCall& call) {
  OrderedJson json;
  if (!call.id().empty()) json["id"] = call.id();
  json["type"] = "function";
  json["function"]["name"] = call.name();
  json["function"]["arguments"] = call.arguments();
  return json;
}

OrderedJson ToJson(const v1::ChatMessage& message) {
  OrderedJson json;
  json["role"] = message.role();
  // Templates that test for a missing content look for the key, and others for None.
  if (message.has_content()) json["content"] = message.content();
  if (!message.name().empty()) json["name"] = message.name();
  for (const v1::ToolCall& call : message.tool_calls()) json["tool_calls"].push_back(ToJson(call));
  if (!message.tool_call_id().empty()) json["tool_call_id"] = message.tool_call_id();
  if (!message.reasoning().empty()) json["reasoning_content"] = message.reasoning();
  return json;
}

absl::Status CheckMessage(const v1::ChatMessage& message, const std::string& place) {
  if (message.role().empty()) {
    return InvalidArgument(
        place + ".role: got nothing, allowed: a role that the model's chat template knows");
  }
  for (int i = 0; i < message.tool_calls_size(); ++i) {
    const std::string call = absl::StrCat(place, ".tool_calls[", i, "]");
    if (message.tool_calls(i).name().empty()) {
      return InvalidArgument(call + ".name: got nothing, allowed: the name of a function");
    }
    TANDEM_RETURN_IF_ERROR(CheckShape(call + ".arguments", message.tool_calls(i).arguments()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatInput> ToChatInput(const v1::Chat& chat) {
  if (chat.messages().empty()) {
    return InvalidArgument("chat.messages: got nothing, allowed: one message or more");
  }
  ChatInput input;
  for (int i = 0; i < chat.messages_size(); ++i) {
    TANDEM_RETURN_IF_ERROR(CheckMessage(chat.messages(i), absl::StrCat("chat.messages[", i, "]")));
    input.messages.push_back(ToJson(chat.messages(i)));
  }
  TANDEM_ASSIGN_OR_RETURN(
      input.tools, ParseField("chat.tools_json", chat.tools_json(), OrderedJson::value_t::array,
                              "a JSON array of objects"));
  for (size_t i = 0; i < input.tools.size(); ++i) {
    if (input.tools[i].is_object()) continue;
    return InvalidArgument(absl::StrCat("chat.tools_json[", i, "]: got ",
                                        input.tools[i].type_name(), ", allowed: an object"));
  }
  TANDEM_ASSIGN_OR_RETURN(input.kwargs,
                          ParseField("chat.template_kwargs_json", chat.template_kwargs_json(),
                                     OrderedJson::value_t::object, "a JSON object"));
  input.add_generation_prompt = !chat.has_add_generation_prompt() || chat.add_generation_prompt();
  return input;
}

}  // namespace tandem
