#include "common/flags/flag_value.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {

namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Returns, for example, "auto, cpu or cuda".
std::string JoinWords(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string NumberText(double number) {
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return std::to_string(static_cast<int64_t>(number));
  }
  return absl::StrCat(number);
}

// Returns, for example, " from 1 to 1024" or " of at least 0". Empty without limits.
std::string LimitsText(const Flag& flag) {
  const bool bounded_below = std::isfinite(flag.least);
  const bool bounded_above = std::isfinite(flag.most);
  std::string text;
  if (bounded_below && flag.more_than_least) {
    text = absl::StrCat(" above ", NumberText(flag.least));
    if (bounded_above) absl::StrAppend(&text, " and up to ", NumberText(flag.most));
  } else if (bounded_below && bounded_above) {
    text = absl::StrCat(" from ", NumberText(flag.least), " to ", NumberText(flag.most));
  } else if (bounded_below) {
    text = absl::StrCat(" of at least ", NumberText(flag.least));
  } else if (bounded_above) {
    text = absl::StrCat(" of at most ", NumberText(flag.most));
  }
  return text;
}

bool IsWord(const Flag& flag, const std::string& text) {
  if (flag.words.empty()) return false;
  const std::vector<std::string> words = FlagWords(flag);
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool IsWithinLimits(const Flag& flag, double number) {
  if (flag.or_zero && number == 0) return true;
  if (flag.more_than_least ? number <= flag.least : number < flag.least) return false;
  return number <= flag.most;
}

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

// The texts "512M", "512 MB" and "512MiB" all mean 512 << 20.
std::optional<uint64_t> ParseBytes(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) {
    ++digits;
  }
  const std::optional<uint64_t> number = ParseNumber<uint64_t>(text.substr(0, digits));
  if (!number) return std::nullopt;
  std::string unit;
  for (const char c : text.substr(digits)) {
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  int shift = 0;
  if (!unit.empty() && unit != "b") {
    const size_t prefix = std::string_view("kmgtpe").find(unit.front());
    const std::string rest = unit.substr(1);
    if (prefix == std::string_view::npos ||
        !(rest.empty() || rest == "b" || rest == "i" || rest == "ib")) {
      return std::nullopt;
    }
    shift = 10 * (static_cast<int>(prefix) + 1);
  }
  if (*number > std::numeric_limits<uint64_t>::max() >> shift) return std::nullopt;
  return *number << shift;
}

absl::Status NotAllowed(const Flag& flag, const std::string& text) {
  return BadFlagValue(flag, text, AllowedValues(flag));
}

std::optional<bool> ParseSwitch(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* yes : {"true", "1", "yes", "on", "y", "t", "enable"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "0", "no", "off", "n", "f", "disable", "-1"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

template <typename Integer>
absl::Status ParseInteger(const Flag& flag, const std::string& text, Integer* value) {
  std::optional<Integer> number;
  if (flag.kind == FlagKind::kBytes) {
    const std::optional<uint64_t> bytes = ParseBytes(text);
    if (bytes && std::in_range<Integer>(*bytes)) number = static_cast<Integer>(*bytes);
  } else {
    number = ParseNumber<Integer>(text);
  }
  if (!number || !IsWithinLimits(flag, static_cast<double>(*number))) return NotAllowed(flag, text);
  *value = *number;
  return absl::OkStatus();
}

}  // namespace

std::string AllowedValues(const Flag& flag) {
  if (flag.kind == FlagKind::kSwitch) return "";
  if (flag.kind == FlagKind::kText) return "text";
  if (flag.kind == FlagKind::kChoice) return JoinWords(FlagWords(flag));
  std::string text;
  if (!flag.words.empty()) text = JoinWords(FlagWords(flag)) + ", or ";
  if (flag.or_zero) text += "0, or ";
  text += flag.kind == FlagKind::kInteger  ? "a whole number"
          : flag.kind == FlagKind::kNumber ? "a number"
                                           : "a number of bytes such as 512M or 4G";
  return text + LimitsText(flag);
}

absl::Status BadFlagValue(const Flag& flag, const std::string& text, const std::string& allowed) {
  return InvalidArgument(std::string(flag.name) + ": got \"" + text + "\", allowed: " + allowed);
}

absl::Status CheckFlagValue(const Flag& flag, const std::string& text) {
  switch (flag.kind) {
    case FlagKind::kText:
      return absl::OkStatus();
    case FlagKind::kSwitch: {
      bool ignored = false;
      return ParseFlagValue(flag, text, &ignored);
    }
    case FlagKind::kChoice:
      return IsWord(flag, text) ? absl::OkStatus() : NotAllowed(flag, text);
    case FlagKind::kNumber: {
      double ignored = 0;
      return IsWord(flag, text) ? absl::OkStatus() : ParseFlagValue(flag, text, &ignored);
    }
    case FlagKind::kInteger:
    case FlagKind::kBytes: {
      if (IsWord(flag, text)) return absl::OkStatus();
      if (!text.empty() && text.front() == '-') {
        int64_t ignored = 0;
        return ParseFlagValue(flag, text, &ignored);
      }
      uint64_t ignored = 0;
      return ParseFlagValue(flag, text, &ignored);
    }
  }
  return absl::OkStatus();
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text, std::string* value) {
  TANDEM_RETURN_IF_ERROR(CheckFlagValue(flag, text));
  *value = text;
  return absl::OkStatus();
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text,
                            std::filesystem::path* value) {
  TANDEM_RETURN_IF_ERROR(CheckFlagValue(flag, text));
  *value = text;
  return absl::OkStatus();
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text, bool* value) {
  const std::optional<bool> parsed = ParseSwitch(text);
  if (!parsed) return BadFlagValue(flag, text, "true or false");
  *value = *parsed;
  return absl::OkStatus();
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text, double* value) {
  const std::optional<double> number = ParseNumber<double>(text);
  if (!number || !std::isfinite(*number) || !IsWithinLimits(flag, *number)) {
    return NotAllowed(flag, text);
  }
  *value = *number;
  return absl::OkStatus();
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text, float* value) {
  const std::optional<float> number = ParseNumber<float>(text);
  if (!number || !std::isfinite(*number) || !IsWithinLimits(flag, *number)) {
    return NotAllowed(flag, text);
  }
  *value = *number;
  return absl::OkStatus();
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text, int64_t* value) {
  return ParseInteger(flag, text, value);
}

absl::Status ParseFlagValue(const Flag& flag, const std::string& text, uint64_t* value) {
  return ParseInteger(flag, text, value);
}

std::vector<std::string> SplitFlagValues(const Flag& flag, const std::string& text) {
  if (flag.values != FlagValues::kCommas) return {text};
  return Split(text, ',');
}

std::vector<std::string> FlagWords(const Flag& flag) {
  if (flag.words.empty()) return {};
  return Split(flag.words, '|');
}

}  // namespace tandem
