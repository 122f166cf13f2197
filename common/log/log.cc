#include "common/log/log.h"

#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "common/log/log_line.h"

namespace tandem {
namespace {

using Format = std::string (*)(std::chrono::system_clock::time_point, std::string_view,
                               std::string_view, std::string_view, const LogFields&);

Format FormatOf(const LogOptions& options) {
  return options.format == "json" ? JsonLogLine : TextLogLine;
}

std::string_view View(spdlog::string_view_t text) { return {text.data(), text.size()}; }

// Fields of the line that this thread is logging. Sinks format the line before `log` returns.
thread_local const LogFields* current_fields = nullptr;

class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(Format line_format) : format_(line_format) {}

  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& out) override {
    const std::string text =
        format_(line.time, View(spdlog::level::to_string_view(line.level)), View(line.logger_name),
                View(line.payload), current_fields == nullptr ? LogFields() : *current_fields);
    out.append(text.data(), text.data() + text.size());
    out.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(format_);
  }

 private:
  Format format_;
};

}  // namespace

void SetUpLog(const LogOptions& options) {
  SetUpLog(options, std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

void SetUpLog(const LogOptions& options, std::shared_ptr<spdlog::sinks::sink> sink) {
  auto logger = std::make_shared<spdlog::logger>(options.process, std::move(sink));
  logger->set_formatter(std::make_unique<LineFormatter>(FormatOf(options)));
  logger->set_level(spdlog::level::from_str(options.level));
  spdlog::set_default_logger(std::move(logger));
}

bool Logs(spdlog::level::level_enum level) {
  return spdlog::default_logger_raw()->should_log(level);
}

void LogWith(spdlog::level::level_enum level, const LogFields& fields, std::string_view message) {
  current_fields = &fields;
  spdlog::default_logger_raw()->log(level, "{}", message);
  current_fields = nullptr;
}

void LogFatal(const LogOptions& options, std::string_view message) {
  const std::string line = FormatOf(options)(std::chrono::system_clock::now(), "error",
                                             options.process, message, LogFields());
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace tandem
