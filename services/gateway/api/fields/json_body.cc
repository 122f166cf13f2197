#include "services/gateway/api/fields/json_body.h"

#include <string>
#include <utility>

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

// Writes the value of one member of the outermost object again while the parser reads the text.
class MemberText final : public nlohmann::json_sax<Json> {
 public:
  explicit MemberText(std::string_view name) : name_(name) {}
  std::string Take() { return std::move(text_); }

  bool null() override { return Scalar("null"); }
  bool boolean(bool value) override { return Scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Scalar(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Scalar(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return Scalar(text);
  }
  bool string(string_t& value) override { return Scalar(Json(value).dump()); }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON has none
  bool start_object(std::size_t /*size*/) override { return Open('{'); }
  bool end_object() override { return Close('}'); }
  bool start_array(std::size_t /*size*/) override { return Open('['); }
  bool end_array() override { return Close(']'); }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      is_inside_ = key == name_;
      if (is_inside_) text_.clear();  // the last one of several members counts
    } else if (is_inside_) {
      Separate();
      text_ += Json(key).dump() + ":";
    }
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  void Separate() {
    if (text_.empty()) return;
    const char last = text_.back();
    if (last != '{' && last != '[' && last != ':') text_ += ',';
  }
  bool Scalar(std::string_view value) {
    if (!is_inside_) return true;
    Separate();
    text_ += value;
    return true;
  }
  bool Open(char bracket) {
    ++depth_;
    if (!is_inside_) return true;
    Separate();
    text_ += bracket;
    return true;
  }
  bool Close(char bracket) {
    --depth_;
    if (is_inside_ && depth_ > 0) text_ += bracket;
    return true;
  }

  const std::string_view name_;
  int depth_ = 0;
  bool is_inside_ = false;  // what is read belongs to the member
  std::string text_;
};

}  // namespace

absl::StatusOr<Json> ParseJsonBody(std::string_view body, const JsonLimits& limits) {
  if (body.empty()) return InvalidArgument("the body is empty, want a JSON object");
  // The parser takes this byte for the end of the text.
  if (const size_t at = body.find('\0'); at != std::string_view::npos) {
    return InvalidArgument("the body is not valid JSON at byte " + std::to_string(at + 1) + " of " +
                           std::to_string(body.size()));
  }
  TANDEM_RETURN_IF_ERROR(CheckShape(body, limits));
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::parse_error& error) {
    if (error.byte > body.size()) {
      return InvalidArgument("the body is not valid JSON: it ends too early");
    }
    return InvalidArgument("the body is not valid JSON at byte " + std::to_string(error.byte) +
                           " of " + std::to_string(body.size()));
  } catch (const Json::exception&) {  // for example a number beyond the range of a double
    return InvalidArgument("the body has a number that is out of range");
  }
  if (!json.is_object()) {
    return InvalidArgument("the body is " + std::string(TypeText(json)) + ", want an object");
  }
  return json;
}

std::string OrderedMember(std::string_view body, std::string_view name) {
  MemberText text(name);
  Json::sax_parse(body, &text);
  return text.Take();
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
