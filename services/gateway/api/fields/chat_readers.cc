#include "services/gateway/api/fields/chat_readers.h"

#include <utility>

#include "common/peer_text.h"
#include "services/gateway/api/fields/field_readers.h"

namespace tandem::gateway {
namespace {

constexpr int32_t kMaxTopLogprobs = 20;  // OpenAI's limit, and the router's

// Returns null for a key that is missing or null.
const Json* Member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Sets `text` if the object has the key.
absl::Status ReadMember(const std::string& place, const Json& object, const char* key,
                        std::string* text) {
  const Json* const value = Member(object, key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return WrongType(place + "." + key, *value, "a string");
  *text = value->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadCall(const std::string& place, const Json& value, v1::ToolCall* call) {
  if (!value.is_object()) return WrongType(place, value, "an object with a function");
  TANDEM_RETURN_IF_ERROR(ReadMember(place, value, "id", call->mutable_id()));
  const Json* const function = Member(value, "function");
  if (function == nullptr || !function->is_object()) {
    return InvalidArgument(place + ".function: got no object, allowed: {\"name\": …, " +
                           "\"arguments\": …}");
  }
  const std::string in_function = place + ".function";
  TANDEM_RETURN_IF_ERROR(ReadMember(in_function, *function, "name", call->mutable_name()));
  if (call->name().empty()) {
    return InvalidArgument(in_function + ".name: got nothing, allowed: the name of a function");
  }
  return ReadMember(in_function, *function, "arguments", call->mutable_arguments());
}

absl::Status ReadCalls(const std::string& place, const Json& message, v1::ChatMessage* out) {
  if (Member(message, "function_call") != nullptr) {
    return InvalidArgument(place + ".function_call: got a call, allowed: tool_calls");
  }
  const Json* const calls = Member(message, "tool_calls");
  if (calls == nullptr) return absl::OkStatus();
  const std::string name = place + ".tool_calls";
  if (!calls->is_array()) return WrongType(name, *calls, "a list of calls");
  for (size_t i = 0; i < calls->size(); ++i) {
    TANDEM_RETURN_IF_ERROR(
        ReadCall(name + "[" + std::to_string(i) + "]", (*calls)[i], out->add_tool_calls()));
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const std::string& place, const Json& value, v1::ChatMessage* message) {
  if (!value.is_object()) return WrongType(place, value, "an object with a role and a content");
  TANDEM_RETURN_IF_ERROR(ReadMember(place, value, "role", message->mutable_role()));
  if (message->role().empty()) {
    return InvalidArgument(place + ".role: got nothing, allowed: system, user, assistant, tool, " +
                           "or another role that the model's chat template knows");
  }
  if (const Json* const content = Member(value, "content")) {
    TANDEM_RETURN_IF_ERROR(
        ReadContent(place + ".content", *content, "\n", message->mutable_content()));
  }
  TANDEM_RETURN_IF_ERROR(ReadMember(place, value, "name", message->mutable_name()));
  TANDEM_RETURN_IF_ERROR(ReadMember(place, value, "tool_call_id", message->mutable_tool_call_id()));
  for (const char* key : {"reasoning", "reasoning_content"}) {
    TANDEM_RETURN_IF_ERROR(ReadMember(place, value, key, message->mutable_reasoning()));
  }
  TANDEM_RETURN_IF_ERROR(ReadCalls(place, value, message));
  if (message->has_content() || message->tool_calls_size() > 0) return absl::OkStatus();
  // An assistant that refused said this and nothing else.
  if (message->role() == "assistant") {
    return ReadMember(place, value, "refusal", message->mutable_content());
  }
  return InvalidArgument(place + ".content: got nothing, allowed: a string, or a list of text " +
                         "parts; only messages with tool_calls have none");
}

}  // namespace

absl::Status ReadMessages(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_array()) return WrongType(name, value, "a list of messages");
  if (value.empty()) {
    return InvalidArgument(name + ": got an empty list, allowed: one message or more");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(
        ReadMessage(name + "[" + std::to_string(i) + "]", value[i], draft->chat.add_messages()));
  }
  return absl::OkStatus();
}

absl::Status ReadTools(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_array()) return WrongType(name, value, "a list of tools");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string place = name + "[" + std::to_string(i) + "]";
    if (!value[i].is_object()) return WrongType(place, value[i], "an object with a function");
    const Json* const type = Member(value[i], "type");
    if (type != nullptr && *type != "function") {
      return InvalidArgument(place + ".type: got another type, allowed: function");
    }
    std::string tool;
    const Json* const function = Member(value[i], "function");
    if (function != nullptr && function->is_object()) {
      TANDEM_RETURN_IF_ERROR(ReadMember(place + ".function", *function, "name", &tool));
    }
    if (tool.empty()) {
      return InvalidArgument(place + ".function.name: got nothing, allowed: a name");
    }
    draft->answer.tool_names.insert(std::move(tool));
  }
  if (!value.empty()) draft->chat.set_tools_json(OrderedMember(draft->body, name));
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const std::string& name, const Json& value, RequestDraft* draft) {
  if (value == "auto") return absl::OkStatus();
  if (value == "none") {
    draft->uses_tools = false;
    return absl::OkStatus();
  }
  const std::string got =
      value.is_string() ? QuotedShort(value.get<std::string>()) : std::string(TypeText(value));
  return InvalidArgument(name + ": got " + got + ", allowed: auto or none. A call that the model " +
                         "must make needs forced output, which is not supported yet");
}

absl::Status ReadParallelCalls(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_boolean()) return WrongType(name, value, "a boolean");
  draft->answer.one_call = !value.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadTemplateKwargs(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_object()) return WrongType(name, value, "an object");
  draft->has_effort_variable = value.contains("reasoning_effort");
  draft->chat.set_template_kwargs_json(OrderedMember(draft->body, name));
  return absl::OkStatus();
}

absl::Status ReadReasoningEffort(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_string()) return WrongType(name, value, "a string");
  draft->reasoning_effort = value.get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadGenerationPrompt(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_boolean()) return WrongType(name, value, "a boolean");
  draft->chat.set_add_generation_prompt(value.get<bool>());
  return absl::OkStatus();
}

absl::Status ReadChatLogprobs(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_boolean()) return WrongType(name, value, "a boolean");
  draft->answer.logprobs = value.get<bool>();
  if (!draft->answer.logprobs) return absl::OkStatus();
  v1::SamplingParams* sampling = draft->shared.mutable_sampling_params();
  sampling->set_logprobs(draft->top_logprobs.value_or(0));
  sampling->set_logprobs_with_text(true);
  return absl::OkStatus();
}

absl::Status ReadTopLogprobs(const std::string& name, const Json& value, RequestDraft* draft) {
  TANDEM_ASSIGN_OR_RETURN(draft->top_logprobs, ReadInRange(name, value, 0, kMaxTopLogprobs));
  if (draft->answer.logprobs) {
    draft->shared.mutable_sampling_params()->set_logprobs(*draft->top_logprobs);
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
