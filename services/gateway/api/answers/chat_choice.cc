#include "services/gateway/api/answers/chat_choice.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {
namespace {

// The first bits of a hash, as letters and digits.
std::string ShortId(const std::string& text) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr int kLength = 9;
  size_t hash = std::hash<std::string>()(text);
  std::string id;
  for (int i = 0; i < kLength; ++i, hash /= kLetters.size()) id += kLetters[hash % kLetters.size()];
  return id;
}

}  // namespace

ChatChoice::ChatChoice(const Options& options)
    : options_(options),
      parser_(MakeToolCallParser(options.tool_call_format, options.tool_names)) {}

std::string ChatChoice::CallId(size_t call) const {
  const std::string path =
      options_.answer_id + "-" + std::to_string(options_.index) + "-" + std::to_string(call);
  return WantsShortCallIds(options_.tool_call_format) ? ShortId(path) : "call_" + path;
}

void ChatChoice::AddText(const std::string& text, bool is_last) {
  if (parser_ == nullptr) {
    content_ += text;
    return;
  }
  ToolOutput output;
  parser_->Push(text, &output);
  if (is_last) parser_->Finish(&output);
  content_ += output.content;
  for (ToolCallDelta& delta : output.calls) {
    if (options_.one_call && delta.index > 0) continue;
    if (!calls_.empty() && calls_.back().index == delta.index) {
      calls_.back().arguments += delta.arguments;
    } else {
      calls_.push_back(std::move(delta));
    }
  }
}

void ChatChoice::Add(const v1::GenerateResponse& message) {
  AddText(message.text(), message.has_completion());
  if (options_.has_logprobs) {
    for (const v1::TokenLogprobs& token : message.logprobs()) logprobs_.Add(token);
  }
  if (!message.has_completion()) return;
  has_ended_ = true;
  end_ = FinishReasonText(message.completion());
  // Calls that something cut off are not calls to make.
  const bool has_calls = parser_ != nullptr && parser_->has_complete_calls();
  if (has_calls && message.completion().finish_reason() == v1::FINISH_REASON_STOP) {
    end_ = "\"tool_calls\"";
  }
  stop_reason_ = StopReasonText(message.completion(), options_.stop_token_ids);
}

bool ChatChoice::has_news() const {
  return !content_.empty() || !calls_.empty() || !logprobs_.empty() || has_ended_;
}

std::string ChatChoice::TakeContent() {
  const bool is_empty = content_.empty();
  if (options_.stream) {
    if (is_empty && !shows_role_) return "";
  } else if (is_empty && !calls_.empty()) {
    return ",\"content\":null";
  }
  return ",\"content\":" + JsonText(std::exchange(content_, {}));
}

std::string ChatChoice::TakeCalls() {
  if (calls_.empty()) return "";
  std::string json;
  for (const ToolCallDelta& call : std::exchange(calls_, {})) {
    json += json.empty() ? "{" : ",{";
    if (options_.stream) json += "\"index\":" + std::to_string(call.index) + ",";
    std::string name;
    if (!call.name.empty()) {
      json += "\"id\":" + JsonText(CallId(call.index)) + ",\"type\":\"function\",";
      name = "\"name\":" + JsonText(call.name) + ",";
    }
    json += "\"function\":{" + name + "\"arguments\":" + JsonText(call.arguments) + "}}";
  }
  return ",\"tool_calls\":[" + json + "]";
}

std::string ChatChoice::Take() {
  std::string parts = TakeContent();
  if (shows_role_) parts = ",\"role\":\"assistant\"" + parts;
  if (!options_.stream) parts += ",\"refusal\":null";
  parts += TakeCalls();
  if (!parts.empty()) parts.erase(0, 1);
  shows_role_ = false;
  const bool shows_logprobs = options_.has_logprobs && (!options_.stream || !logprobs_.empty());
  const std::string logprobs = shows_logprobs ? logprobs_.Take() : "null";
  return absl::StrCat("{\"index\":", options_.index,
                      options_.stream ? ",\"delta\":{" : ",\"message\":{", parts,
                      "},\"logprobs\":", logprobs, ",\"finish_reason\":", end_,
                      ",\"stop_reason\":", stop_reason_, "}");
}

}  // namespace tandem::gateway
