// The origin of a request for distributed tracing: https://www.w3.org/TR/trace-context/.
#ifndef TANDEM_COMMON_LOG_TRACE_CONTEXT_H_
#define TANDEM_COMMON_LOG_TRACE_CONTEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/log/log_fields.h"

namespace tandem {

// The parts of a valid `traceparent`, in lower-case hexadecimal digits.
struct TraceContext {
  std::string trace_id;  // 32 digits, not all 0
  std::string span_id;   // 16 digits, not all 0: the caller's span
};

// Parses `VERSION-TRACE_ID-SPAN_ID-FLAGS` according to section 3.2 of the recommendation: version
// 00 has exactly these four parts, later versions may have more, and ff is no version. Returns
// nullopt if `text` is not valid.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

// Adds trace_id and span_id. Adds nothing if `traceparent` is empty or not valid.
void AddTrace(std::string_view traceparent, LogFields* fields);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_TRACE_CONTEXT_H_
