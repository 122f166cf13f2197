#include "services/gateway/api/answers/json_text.h"

#include <nlohmann/json.hpp>

namespace tandem::gateway {
namespace {

// Appends the text as a JSON string, in less time than the library takes. Returns false, and has
// appended a part, if the text is not ASCII, or has control characters other than line breaks.
bool AppendAscii(std::string_view text, std::string* json) {
  *json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *json += '\\';
      *json += c;
    } else if (c == '\n') {
      *json += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x80) {
      return false;
    } else {
      *json += c;
    }
  }
  *json += '"';
  return true;
}

}  // namespace

std::string JsonText(std::string_view text) {
  std::string json;
  json.reserve(text.size() + 2);
  if (AppendAscii(text, &json)) return json;
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonNumber(double number) { return nlohmann::json(number).dump(); }

std::string SseEvent(std::string_view json) {
  std::string event;
  event.reserve(json.size() + 8);
  event += "data: ";
  event += json;
  event += "\n\n";
  return event;
}

}  // namespace tandem::gateway
