#include "services/gateway/server/access_log.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/log/log.h"
#include "common/log/trace_context.h"
#include "common/metrics/catalogue.h"
#include "common/peer_text.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxLoggedBytes = 512;

// Paths that clients invent would make a series each.
std::string PathLabel(const std::string& path) {
  constexpr std::array<std::string_view, 8> kPaths = {
      "/health",      "/version",       "/v1/models", "/v1/completions",
      "/v1/tokenize", "/v1/detokenize", "/tokenize",  "/detokenize"};
  return std::find(kPaths.begin(), kPaths.end(), path) != kPaths.end() ? path : "other";
}

spdlog::level::level_enum LevelOf(const AccessRecord& record) {
  if (record.status >= 500) return spdlog::level::warn;
  return record.path == "/health" ? spdlog::level::debug : spdlog::level::info;
}

}  // namespace

AccessLog::AccessLog(const std::string& version) : registry_("gateway", version, {}) {}

void AccessLog::Write(const AccessRecord& record) {
  const std::string path = PathLabel(record.path);
  registry_
      .Counter(metrics::kHttpRequests, {{"path", path}, {"status", std::to_string(record.status)}})
      .Increment();
  registry_.Histogram(metrics::kHttpRequestSeconds, {{"path", path}}).Observe(record.seconds);
  const spdlog::level::level_enum level = LevelOf(record);
  if (!Logs(level)) return;
  LogFields fields;
  if (!record.notes.request_id.empty()) fields.Add("request_id", record.notes.request_id);
  fields.Add("method", Shortened(record.method, kMaxLoggedBytes))
      .Add("path", Shortened(record.path, kMaxLoggedBytes))
      .Add("http_status", record.status)
      .Add("seconds", record.seconds)
      .Add("bytes", record.bytes)
      .Add("prompt_tokens", record.notes.prompt_tokens)
      .Add("tokens", record.notes.completion_tokens);
  if (!record.notes.detail.empty()) {
    fields.Add("detail", Shortened(record.notes.detail, kMaxLoggedBytes));
  }
  AddTrace(record.notes.traceparent, &fields);
  LogWith(level, fields, "http request");
}

AdminRoutes AccessLog::Pages(std::function<int()> num_connections) {
  AdminRoutes routes = MetricsRoutes(registry_);
  routes["/metrics"] = [this, page = routes["/metrics"],
                        num_connections = std::move(num_connections)](const std::string& query) {
    registry_.Gauge(metrics::kHttpConnections).Set(num_connections());
    return page(query);
  };
  return routes;
}

}  // namespace tandem::gateway
