#include "common/model/checkpoint/json_fields.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "common/status.h"

namespace tandem {

using Json = nlohmann::json;

std::string ShownJson(const Json& value) {
  constexpr size_t kLongest = 80;
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "…";
}

std::string ShownJson(double value) { return Json(value).dump(); }

JsonFields::JsonFields(const Json& object, std::string file, std::string prefix,
                       absl::Status& status)
    : object_(object), file_(std::move(file)), prefix_(std::move(prefix)), status_(status) {}

const Json* JsonFields::Find(const std::string& name) const {
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

size_t JsonFields::Whole(const std::string& name, size_t min, size_t max,
                         std::optional<size_t> default_value) const {
  const Json* field = Find(name);
  if (field == nullptr) {
    if (!default_value) Refuse(name, "is missing");
    return default_value.value_or(min);
  }
  const std::string want =
      "(want a whole number from " + std::to_string(min) + " to " + std::to_string(max) + ")";
  if (!field->is_number_unsigned() || field->get<uint64_t>() < min ||
      field->get<uint64_t>() > max) {
    Refuse(name, "is " + ShownJson(*field) + " " + want);
    return min;
  }
  return field->get<size_t>();
}

double JsonFields::Real(const std::string& name, double min, double max,
                        std::optional<double> default_value) const {
  const Json* field = Find(name);
  if (field == nullptr) {
    if (!default_value) Refuse(name, "is missing");
    return default_value.value_or(min);
  }
  const double value =
      field->is_number() ? field->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(value >= min && value <= max)) {
    Refuse(name, "is " + ShownJson(*field) + " (want a number from " + ShownJson(min) + " to " +
                     ShownJson(max) + ")");
    return min;
  }
  return value;
}

bool JsonFields::Boolean(const std::string& name, bool default_value) const {
  const Json* field = Find(name);
  if (field == nullptr) return default_value;
  if (!field->is_boolean()) {
    Refuse(name, "is " + ShownJson(*field) + " (want true or false)");
    return default_value;
  }
  return field->get<bool>();
}

std::string JsonFields::String(const std::string& name, const std::string& default_value) const {
  const Json* field = Find(name);
  if (field == nullptr) return default_value;
  if (!field->is_string()) {
    Refuse(name, "is " + ShownJson(*field) + " (want a string)");
    return default_value;
  }
  return field->get<std::string>();
}

std::optional<JsonFields> JsonFields::Object(const std::string& name) const {
  const Json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_object()) {
    Refuse(name, "is " + ShownJson(*field) + " (want an object)");
    return std::nullopt;
  }
  return JsonFields(*field, file_, prefix_ + name + ".", status_);
}

void JsonFields::Refuse(const std::string& name, const std::string& why) const {
  if (status_.ok()) status_ = InvalidArgument(file_ + ": " + prefix_ + name + " " + why);
}

}  // namespace tandem
