// Where a request comes from, as distributed tracing has it: https://www.w3.org/TR/trace-context/.
#ifndef TANDEM_COMMON_LOG_TRACE_CONTEXT_H_
#define TANDEM_COMMON_LOG_TRACE_CONTEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/log/log_fields.h"

namespace tandem {

// Of a valid `traceparent`: lower-case hexadecimal digits.
struct TraceContext {
  std::string trace_id;  // 32 of them, not all 0
  std::string span_id;   // 16, not all 0: the caller's span
};

// `VERSION-TRACE_ID-SPAN_ID-FLAGS`, as section 3.2 of the recommendation takes it: version 00 has
// exactly these four parts, later ones may have more, ff is none. Nullopt: not valid.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

// Adds trace_id and span_id; nothing where `traceparent` is not valid, as it is where there is none.
void AddTrace(std::string_view traceparent, LogFields* fields);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_TRACE_CONTEXT_H_
