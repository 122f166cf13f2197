// A process's log: lines on standard error, as text or as JSON.
#ifndef TANDEM_COMMON_LOG_LOG_H_
#define TANDEM_COMMON_LOG_LOG_H_

#include <spdlog/common.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/log/log_fields.h"

namespace tandem {

struct LogOptions {
  std::string process;          // how its lines name it: "router", "draft", "verifier"
  std::string level = "info";   // debug, info, warn, error or off
  std::string format = "text";  // or json
};

// Gives spdlog its default logger. spdlog::info("…") is for lines that are about nothing in
// particular.
void SetUpLog(const LogOptions& options);

// The same to a sink of the caller's: for tests.
void SetUpLog(const LogOptions& options, std::shared_ptr<spdlog::sinks::sink> sink);

// Whether lines of that level are written: for those that cost something to put together.
bool Logs(spdlog::level::level_enum level);

// A line about something.
void LogWith(spdlog::level::level_enum level, const LogFields& fields, std::string_view message);

// What the process ends with; written whatever the level is.
void LogFatal(const LogOptions& options, std::string_view message);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_LOG_H_
