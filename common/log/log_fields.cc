#include "common/log/log_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace tandem {

std::string ToJsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

LogFields& LogFields::Add(std::string_view name, std::string_view text) {
  return AddRaw(name, ToJsonString(text));
}

LogFields& LogFields::Add(std::string_view name, double number) {
  // Six digits are a microsecond of a second.
  return AddRaw(name, std::isfinite(number) ? absl::StrFormat("%.6g", number) : "null");
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
