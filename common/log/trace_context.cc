#include "common/log/trace_context.h"

#include <algorithm>
#include <cstddef>

namespace tandem {
namespace {

constexpr size_t kTraceIdDigits = 32;
constexpr size_t kSpanIdDigits = 16;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  constexpr size_t kTraceIdAt = 3;
  constexpr size_t kSpanIdAt = kTraceIdAt + kTraceIdDigits + 1;
  constexpr size_t kFlagsAt = kSpanIdAt + kSpanIdDigits + 1;
  constexpr size_t kSize = kFlagsAt + 2;
  if (text.size() < kSize) return std::nullopt;
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace_id = text.substr(kTraceIdAt, kTraceIdDigits);
  const std::string_view span_id = text.substr(kSpanIdAt, kSpanIdDigits);
  const bool has_dashes =
      text[kTraceIdAt - 1] == '-' && text[kSpanIdAt - 1] == '-' && text[kFlagsAt - 1] == '-';
  const bool ends = text.size() == kSize || (version != "00" && text[kSize] == '-');
  if (!has_dashes || !ends || !IsHex(version) || version == "ff" || !IsId(trace_id) ||
      !IsId(span_id) || !IsHex(text.substr(kFlagsAt, 2))) {
    return std::nullopt;
  }
  return TraceContext{std::string(trace_id), std::string(span_id)};
}

void AddTrace(std::string_view traceparent, LogFields* fields) {
  const std::optional<TraceContext> trace = ParseTraceparent(traceparent);
  if (!trace.has_value()) return;
  fields->Add("trace_id", trace->trace_id).Add("span_id", trace->span_id);
}

}  // namespace tandem
