#include "common/log/log_line.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "common/peer_text.h"

namespace tandem {
namespace {

// 2026-11-21T05:58:43.123456Z
std::string Rfc3339(std::chrono::system_clock::time_point time) {
  const auto since_epoch = std::chrono::floor<std::chrono::microseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t unix_time = seconds.count();
  std::tm parts{};
  gmtime_r(&unix_time, &parts);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%06dZ",
                static_cast<int>((since_epoch - seconds).count()));
  return std::string(date) + fraction;
}

}  // namespace

std::string JsonLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view process, std::string_view message,
                        const LogFields& fields) {
  return "{\"time\":\"" + Rfc3339(time) + "\",\"level\":" + ToJsonString(level) +
         ",\"process\":" + ToJsonString(process) + ",\"message\":" + ToJsonString(message) +
         fields.json() + "}";
}

std::string TextLogLine(std::chrono::system_clock::time_point time, std::string_view level,
                        std::string_view process, std::string_view message,
                        const LogFields& fields) {
  std::string line = Rfc3339(time);
  for (const std::string_view part : {level, process}) (line += ' ').append(part);
  // JSON keeps one control byte in the fields as it is: 0x7f.
  return (line += ": ") + EscapeControls(message) + EscapeControls(fields.text());
}

bool IsJsonObject(std::string_view line) {
  return line.starts_with('{') && nlohmann::json::accept(line);
}

}  // namespace tandem
