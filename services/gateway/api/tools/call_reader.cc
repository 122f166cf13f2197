#include "services/gateway/api/tools/call_reader.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace tandem::gateway {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Returns nothing if the text is no JSON string.
std::optional<std::string> Unquoted(const std::string& json) {
  const nlohmann::json value = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace

size_t JsonValueEnd::Push(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        ended_ = depth_ == 0;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      if (depth_ == 0) {  // the bracket around a number or a word
        ended_ = true;
        return i;
      }
      ended_ = --depth_ == 0;
    } else if (depth_ == 0 && begun_ && (c == ',' || IsSpace(c))) {
      ended_ = true;
      return i;
    }
    begun_ = true;
    if (ended_) return i + 1;
  }
  return text.size();
}

size_t CallReader::Push(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && state_ == State::kReading) {
    if (at_ == At::kInValue) {
      const size_t size = end_.Push(text.substr(at));
      AddToValue(text.substr(at, size));
      raw_.append(text.substr(at, size));
      at += size;
      if (end_.ended()) EndValue();
      continue;
    }
    const char c = text[at];
    if (!IsSpace(c) && !PushSyntax(c)) {
      state_ = State::kFailed;
      break;
    }
    if (at_ == At::kInValue) continue;  // the byte begins a value, which takes it
    raw_ += c;
    ++at;
  }
  return at;
}

bool CallReader::PushSyntax(char c) {
  switch (at_) {
    case At::kBegin:
      at_ = At::kKey;
      return c == '{';
    case At::kKey:
      is_key_ = true;
      BeginValue();
      return c == '"';
    case At::kColon:
      at_ = At::kValue;
      return c == ':';
    case At::kValue:
      is_key_ = false;
      is_arguments_ = key_ == "arguments" || key_ == "parameters";
      if (is_arguments_ && has_arguments_) return false;
      is_text_ = c == '"' || c == 'n';
      BeginValue();
      return c != ',' && c != '}' && c != ']';
    case At::kComma:
      if (c == '}') {
        state_ = name_.empty() ? State::kFailed : State::kDone;
        if (!has_arguments_) arguments_ = "{}";
        begun_ = true;
        return true;
      }
      at_ = At::kKey;
      return c == ',';
    case At::kInValue:
      break;
  }
  return false;
}

void CallReader::BeginValue() {
  at_ = At::kInValue;
  end_ = JsonValueEnd();
  value_.clear();
}

void CallReader::AddToValue(std::string_view part) {
  const bool is_argument = !is_key_ && is_arguments_ && !is_text_;
  (is_argument ? arguments_ : value_).append(part);
  begun_ = begun_ || is_argument;
}

void CallReader::EndValue() {
  at_ = is_key_ ? At::kColon : At::kComma;
  if (is_key_) {
    key_ = Unquoted(value_).value_or("");
    return;
  }
  if (is_arguments_) {
    has_arguments_ = true;
    if (is_text_) arguments_ = Unquoted(value_).value_or("");
    if (is_text_ && arguments_.empty()) arguments_ = "{}";
    begun_ = true;
  } else if (key_ == "name") {
    name_ = Unquoted(value_).value_or("");
    if (names_->contains(name_)) return;
    name_.clear();
    state_ = State::kFailed;
  }
}

}  // namespace tandem::gateway
