#include "services/router/watch/request_log.h"

#include <utility>

#include "common/log/log.h"
#include "common/log/trace_context.h"

namespace tandem {
namespace {

constexpr double kTurnedAwaySeconds = 1;  // time from one line to the next

LogFields WithStatus(LogFields fields, const absl::Status& status) {
  fields.Add("status", absl::StatusCodeToString(status.code()));
  if (!status.ok()) fields.Add("detail", std::string(status.message()));
  return fields;
}

const char* Mode(const GenerationRequest& request) {
  if (request.greedy()) return "greedy";
  return request.open.reproducible() ? "reproducible" : "sampled";
}

}  // namespace

LogFields RequestLog::About(const v1::GenerateRequest& request,
                            const std::string& traceparent) const {
  LogFields fields;
  const std::string& id = request.request_id();
  if (!id.empty() && id.size() <= max_request_id_bytes_) fields.Add("request_id", id);
  AddTrace(traceparent, &fields);
  return fields;
}

void RequestLog::Refused(const v1::GenerateRequest& request, const std::string& traceparent,
                         const absl::Status& status) const {
  if (!Logs(spdlog::level::info)) return;
  LogWith(spdlog::level::info, WithStatus(About(request, traceparent), status), "request refused");
}

void RequestLog::TurnedAway(const v1::GenerateRequest& request, const std::string& traceparent,
                            const absl::Status& status, double now) {
  if (Logs(spdlog::level::debug)) {
    LogWith(spdlog::level::debug, WithStatus(About(request, traceparent), status),
            "request turned away");
  }
  ++turned_away_.requests;
  turned_away_.status = status;
  Tick(now);
}

void RequestLog::Tick(double now) {
  if (turned_away_.requests == 0 || now - turned_away_.logged_at < kTurnedAwaySeconds) return;
  WriteTurnedAway();
  turned_away_.logged_at = now;
}

void RequestLog::WriteTurnedAway() {
  if (turned_away_.requests == 0) return;
  LogFields fields;
  fields.Add("requests", turned_away_.requests);
  LogWith(spdlog::level::warn, WithStatus(std::move(fields), turned_away_.status),
          "requests turned away");
  turned_away_.requests = 0;
}

void RequestLog::Started(CallId call, const std::string& prompt, const GenerationRequest& resolved,
                         double now) {
  running_[call] = {.request_id = resolved.request_id,
                    .choice = resolved.choice,
                    .traceparent = resolved.open.traceparent(),
                    .started_at = now,
                    .completion = {}};
  if (!Logs(spdlog::level::info)) return;
  LogFields fields;
  fields.Add("request_id", resolved.request_id);
  if (resolved.choice > 0) fields.Add("choice", resolved.choice);
  AddTrace(resolved.open.traceparent(), &fields);
  fields.Add("prompt_tokens", resolved.prompt_token_ids.size())
      .Add("max_tokens", resolved.max_tokens)
      .Add("mode", Mode(resolved));
  if (log_prompts_ && resolved.choice == 0) {
    if (!prompt.empty()) fields.Add("prompt", prompt);
    fields.Add("prompt_token_ids", resolved.prompt_token_ids);
  }
  LogWith(spdlog::level::info, fields, "request started");
}

void RequestLog::Completed(CallId call, const v1::Completion& completion) {
  if (const auto running = running_.find(call); running != running_.end()) {
    running->second.completion = completion;
  }
}

void RequestLog::Finished(CallId call, const absl::Status& status, int emitted_tokens,
                          const std::optional<SlotLife>& slot, double now) {
  const auto node = running_.extract(call);
  if (node.empty() || !Logs(spdlog::level::info)) return;
  const Running& request = node.mapped();
  LogFields fields;
  fields.Add("request_id", request.request_id);
  if (request.choice > 0) fields.Add("choice", request.choice);
  AddTrace(request.traceparent, &fields);
  if (slot.has_value()) fields.Add("slot", slot->slot).Add("epoch", slot->epoch);
  fields = WithStatus(std::move(fields), status);
  const v1::SpeculationStats& speculation = request.completion.speculation();
  fields.Add("tokens",
             status.ok() ? request.completion.usage().completion_tokens() : emitted_tokens);
  if (speculation.num_drafts() > 0) fields.Add("acceptance_rate", speculation.acceptance_rate());
  fields.Add("seconds", now - request.started_at);
  LogWith(spdlog::level::info, fields, "request finished");
}

}  // namespace tandem
