#include "services/cli/bench/serve/length_distribution.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "common/status.h"

namespace tandem::cli {

namespace {

constexpr int kMaxLength = 1 << 24;

// Parses a text that is one number and nothing else.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int> ParseLength(std::string_view text) {
  const auto length = ParseNumber<int>(text);
  return length && *length >= 1 && *length <= kMaxLength ? length : std::nullopt;
}

}  // namespace

LengthDistribution LengthDistribution::Fixed(int length) {
  return {Kind::kUniform, static_cast<double>(length), static_cast<double>(length)};
}

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(const std::string& text) {
  const absl::Status wrong =
      InvalidArgument("got \"" + text +
                      "\", want fixed:N, uniform:A-B or lognormal:MEDIAN,SIGMA, with lengths from "
                      "1 to " +
                      std::to_string(kMaxLength) + " and SIGMA from 0 to 5");
  const size_t colon = text.find(':');
  const std::string kind = colon == std::string::npos ? "fixed" : text.substr(0, colon);
  const std::string_view rest =
      std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1);
  if (kind == "fixed") {
    const auto length = ParseLength(rest);
    if (!length) return wrong;
    return Fixed(*length);
  }
  const size_t separator = rest.find(kind == "uniform" ? '-' : ',');
  if (separator == std::string_view::npos) return wrong;
  const auto first = ParseLength(rest.substr(0, separator));
  if (!first) return wrong;
  const std::string_view last = rest.substr(separator + 1);
  if (kind == "uniform") {
    const auto highest = ParseLength(last);
    if (!highest || *highest < *first) return wrong;
    return LengthDistribution(Kind::kUniform, *first, *highest);
  }
  const auto sigma = ParseNumber<double>(last);
  if (kind != "lognormal" || !sigma || !(*sigma >= 0 && *sigma <= 5)) return wrong;
  return LengthDistribution(Kind::kLognormal, *first, *sigma);
}

int LengthDistribution::Draw(std::mt19937_64& random, int limit) const {
  if (kind_ == Kind::kUniform) {
    std::uniform_int_distribution<int> uniform(static_cast<int>(a_), static_cast<int>(b_));
    return std::min(uniform(random), limit);
  }
  std::lognormal_distribution<double> lognormal(std::log(a_), b_);
  return static_cast<int>(std::lround(std::clamp<double>(lognormal(random), 1, limit)));
}

}  // namespace tandem::cli
