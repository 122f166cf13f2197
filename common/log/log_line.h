// One line of a log.
#ifndef TANDEM_COMMON_LOG_LOG_LINE_H_
#define TANDEM_COMMON_LOG_LOG_LINE_H_

#include <chrono>
#include <string>
#include <string_view>

#include "common/log/log_fields.h"

namespace tandem {

// Returns one JSON object on one line, without the line's end: time (RFC 3339, UTC, microseconds),
// level, process, message, then the fields.
std::string JsonLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view process, std::string_view message,
                        const LogFields& fields = {});
// Returns the same parts as text for people, with the fields at the end. The result is always one
// line, because control bytes are escaped.
std::string TextLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view process, std::string_view message,
                        const LogFields& fields = {});

// Returns true for a line of a child process that logs JSON.
bool IsJsonObject(std::string_view line);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_LOG_LINE_H_
