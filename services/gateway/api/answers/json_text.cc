#include "services/gateway/api/answers/json_text.h"

#include <nlohmann/json.hpp>

namespace tandem::gateway {

std::string JsonText(std::string_view text) {
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
