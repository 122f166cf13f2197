// What a log line is about, beside its text: names and values that a program can look for.
#ifndef TANDEM_COMMON_LOG_LOG_FIELDS_H_
#define TANDEM_COMMON_LOG_LOG_FIELDS_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// Names in use: request_id, slot, epoch, session; docs/cli.md lists all. In the order in which they
// were added.
class LogFields {
 public:
  LogFields& Add(std::string_view name, std::string_view text);
  LogFields& Add(std::string_view name, double number);
  LogFields& Add(std::string_view name, std::span<const int32_t> numbers);
  template <std::integral Number>
  LogFields& Add(std::string_view name, Number number) {
    return AddRaw(name, std::to_string(number));
  }
  // Nothing where there is no value.
  template <typename Value>
  LogFields& Add(std::string_view name, const std::optional<Value>& value) {
    return value.has_value() ? Add(name, *value) : *this;
  }

  // `,"name":value` for each; and ` name=value` for each.
  const std::string& json() const { return json_; }
  const std::string& text() const { return text_; }

 private:
  LogFields& AddRaw(std::string_view name, const std::string& value);

  std::string json_;
  std::string text_;
};

// `text` as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD.
std::string ToJsonString(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_LOG_FIELDS_H_
