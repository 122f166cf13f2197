#include "common/log/log_fields.h"

#include <nlohmann/json.hpp>

namespace tandem {

std::string ToJsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

LogFields& LogFields::Add(std::string_view name, std::string_view text) {
  return AddRaw(name, ToJsonString(text));
}

LogFields& LogFields::Add(std::string_view name, double number) {
  return AddRaw(name, nlohmann::json(number).dump());
}

LogFields& LogFields::Add(std::string_view name, std::span<const int32_t> numbers) {
  return AddRaw(name, nlohmann::json(numbers).dump());
}

LogFields& LogFields::AddRaw(std::string_view name, const std::string& value) {
  (json_ += ",\"").append(name) += "\":" + value;
  (text_ += ' ').append(name) += "=" + value;
  return *this;
}

}  // namespace tandem
