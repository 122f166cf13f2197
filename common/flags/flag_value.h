// Converts and checks the text of a flag's value, with the limits of the table.
#ifndef TANDEM_COMMON_FLAGS_FLAG_VALUE_H_
#define TANDEM_COMMON_FLAGS_FLAG_VALUE_H_

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/flags/flag.h"
#include "common/status.h"

namespace tandem {

// Returns the values that a flag takes, in words: "a whole number from 1 to 1024", "auto, cpu or
// cuda". Returns "text" if any text is allowed, and "" for a switch.
std::string AllowedValues(const Flag& flag);

// Returns INVALID_ARGUMENT. The message names the flag, the given text and the allowed values.
absl::Status BadFlagValue(const Flag& flag, const std::string& text, const std::string& allowed);

// Checks one value, or one of the values of a flag that takes several. Errors are those of
// BadFlagValue.
absl::Status CheckFlagValue(const Flag& flag, const std::string& text);

// Checks and converts one value. Errors are those of BadFlagValue, also if *value cannot hold the
// number.
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, std::string* value);
absl::Status ParseFlagValue(const Flag& flag, const std::string& text,
                            std::filesystem::path* value);
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, bool* value);
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, float* value);
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, double* value);
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, int64_t* value);
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, uint64_t* value);

template <std::integral Integer>
absl::Status ParseFlagValue(const Flag& flag, const std::string& text, Integer* value) {
  std::conditional_t<std::is_signed_v<Integer>, int64_t, uint64_t> wide = 0;
  TANDEM_RETURN_IF_ERROR(ParseFlagValue(flag, text, &wide));
  if (!std::in_range<Integer>(wide)) {
    return BadFlagValue(flag, text,
                        "at most " + std::to_string(std::numeric_limits<Integer>::max()));
  }
  *value = static_cast<Integer>(wide);
  return absl::OkStatus();
}

// Returns the texts between the commas of `text`, if the flag takes several values.
std::vector<std::string> SplitFlagValues(const Flag& flag, const std::string& text);

// Returns the words of `words`, which has | between them.
std::vector<std::string> FlagWords(const Flag& flag);

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_FLAG_VALUE_H_
