// The fields of a log line: names and values that a program can search for.
#ifndef TANDEM_COMMON_LOG_LOG_FIELDS_H_
#define TANDEM_COMMON_LOG_LOG_FIELDS_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// Fields in the order in which they were added. docs/cli.md lists all names in use, such as
// request_id, slot, epoch and session.
class LogFields {
 public:
  LogFields& Add(std::string_view name, std::string_view text);
  LogFields& Add(std::string_view name, double number);
  LogFields& Add(std::string_view name, std::span<const int32_t> numbers);
  template <std::integral Number>
  LogFields& Add(std::string_view name, Number number) {
    return AddRaw(name, std::to_string(number));
  }
  // Adds nothing if there is no value.
  template <typename Value>
  LogFields& Add(std::string_view name, const std::optional<Value>& value) {
    return value.has_value() ? Add(name, *value) : *this;
  }

  // json() has `,"name":value` for each field, and text() has ` name=value`.
  const std::string& json() const { return json_; }
  const std::string& text() const { return text_; }

 private:
  LogFields& AddRaw(std::string_view name, const std::string& value);

  std::string json_;
  std::string text_;
};

// Returns `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string ToJsonString(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_LOG_FIELDS_H_
