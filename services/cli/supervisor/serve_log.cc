#include "services/cli/supervisor/serve_log.h"

#include <chrono>

#include "common/log/log_line.h"

namespace tandem::cli {

namespace {

constexpr char kSupervisor[] = "tandem";

std::string InJson(const std::string& level, const std::string& process, const std::string& text) {
  return JsonLogLine(std::chrono::system_clock::now(), level, process, text);
}

}  // namespace

void ServeLog::Line(const std::string& process, const std::string& line) {
  if (!json_) {
    out_ << palette_.Dim(process + ": ") << line << std::endl;
  } else {
    out_ << (IsJsonObject(line) ? line : InJson("info", process, line)) << std::endl;
  }
}

void ServeLog::Say(const std::string& level, const std::string& text) {
  if (json_) {
    out_ << InJson(level, kSupervisor, text) << std::endl;
  } else {
    out_ << palette_.Dim(std::string(kSupervisor) + ": " + text) << std::endl;
  }
}

}  // namespace tandem::cli
