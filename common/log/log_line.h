// One line of a log.
#ifndef TANDEM_COMMON_LOG_LOG_LINE_H_
#define TANDEM_COMMON_LOG_LOG_LINE_H_

#include <chrono>
#include <string>
#include <string_view>

#include "common/log/log_fields.h"

namespace tandem {

// One JSON object, one line without its end: time (RFC 3339, UTC, microseconds), level, process,
// message, then the fields.
std::string JsonLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view process, std::string_view message,
                        const LogFields& fields = {});
// For people: the same parts, the fields at the end. One line whatever they hold: control bytes are
// escaped.
std::string TextLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view process, std::string_view message,
                        const LogFields& fields = {});

// True for what a child that logs JSON writes.
bool IsJsonObject(std::string_view line);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_LOG_LINE_H_
