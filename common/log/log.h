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
  std::string process;          // name of the process in its lines: "router", "draft", "verifier"
  std::string level = "info";   // debug, info, warn, error or off
  std::string format = "text";  // or json
};

// Sets spdlog's default logger. spdlog::info("…") is for lines that have no fields.
void SetUpLog(const LogOptions& options);

// Does the same with the caller's sink. Tests use it.
void SetUpLog(const LogOptions& options, std::shared_ptr<spdlog::sinks::sink> sink);

// Returns whether lines of this level are written. Called before an expensive line is composed.
bool Logs(spdlog::level::level_enum level);

// Writes a line with fields.
void LogWith(spdlog::level::level_enum level, const LogFields& fields, std::string_view message);

// Writes the last line of a process that fails. It is written at every level.
void LogFatal(const LogOptions& options, std::string_view message);

}  // namespace tandem

#endif  // TANDEM_COMMON_LOG_LOG_H_
