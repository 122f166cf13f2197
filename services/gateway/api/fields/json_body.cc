#include "services/gateway/api/fields/json_body.h"

#include <optional>
#include <string>

#include "common/status.h"

namespace tandem::gateway {
namespace {

// Counts before anything is made. Texts that are no JSON may be counted wrongly: the parser refuses
// them.
absl::Status CheckShape(std::string_view body, const JsonLimits& limits) {
  int depth = 0;
  size_t values = 1;
  size_t containers = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ',') ++values;
    if (c == '[' || c == '{') {
      ++depth;
      ++values;
      ++containers;
    }
    if (c == ']' || c == '}') --depth;
    if (depth > limits.depth) {
      return InvalidArgument("the body is nested more than " + std::to_string(limits.depth) +
                             " levels deep");
    }
    if (values > limits.values || containers > limits.containers) {
      return InvalidArgument("the body has more than " + std::to_string(limits.values) +
                             " values, or more than " + std::to_string(limits.containers) +
                             " arrays and objects");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ParseJsonBody(std::string_view body, const JsonLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckShape(body, limits));
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::parse_error& error) {
    return InvalidArgument("the body is no valid JSON at byte " + std::to_string(error.byte) +
                           " of " + std::to_string(body.size()));
  } catch (const Json::exception&) {  // for example a number beyond the range of a double
    return InvalidArgument("the body has a number that is out of range");
  }
  if (!json.is_object()) {
    return InvalidArgument("the body is " + std::string(TypeText(json)) + ", want an object");
  }
  return json;
}

std::optional<std::string_view> RawMember(std::string_view body, std::string_view name) {
  std::optional<std::string_view> found;
  int depth = 0;
  size_t string_begin = 0;  // where the last string of the body itself is
  size_t string_size = 0;
  std::string_view key;
  size_t value = 0;  // where the value of `key` begins; 0: no key came
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '"') {
      const size_t begin = ++i;
      while (body[i] != '"') i += body[i] == '\\' ? 2 : 1;
      string_begin = begin;
      string_size = i - begin;
      continue;
    }
    const bool ends = depth == 1 && (c == ',' || c == '}');
    if (ends && value > 0 && key == name) found = body.substr(value, i - value);  // the last counts
    if (ends) value = 0;
    if (depth == 1 && c == ':') {
      key = body.substr(string_begin, string_size);
      value = i + 1;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
  }
  return found;
}

std::string_view TypeText(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    default:
      return "a value of another type";
  }
}

}  // namespace tandem::gateway
