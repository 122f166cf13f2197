#include "services/cli/batch/batch_runner.h"

#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/gateway/api/answers/completion_response.h"
#include "services/gateway/api/requests/tenant_name.h"

namespace tandem::cli {

namespace {

using gateway::CallEnd;
using gateway::CompletionRequest;
using gateway::CompletionResponse;

constexpr std::chrono::milliseconds kLookPeriod{200};
// The pauses before a line is sent again while the server cannot be reached.
constexpr std::array<double, 6> kPauses = {0.5, 1, 2, 4, 8, 16};
constexpr int kRefusedHttp = 400;
constexpr int kIdInUseHttp = 409;
constexpr int kBusyHttp = 429;
constexpr int kFirstServerErrorHttp = 500;

std::string RandomHex() {
  std::random_device random;
  return absl::StrFormat("%08x", random());
}

// Whether the line is at fault, so that it would fail again.
bool MustBeCorrected(int http_status) {
  return http_status >= kRefusedHttp && http_status < kFirstServerErrorHttp &&
         http_status != kIdInUseHttp && http_status != kBusyHttp;
}

// What would befall every other line too.
bool EndsBatch(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

absl::StatusOr<CompletionRequest> ParseBody(const BatchLine& line) {
  TANDEM_ASSIGN_OR_RETURN(CompletionRequest request, line.is_chat
                                                         ? CompletionRequest::ParseChat(line.body)
                                                         : CompletionRequest::Parse(line.body));
  if (request.answer().stream) {
    return InvalidArgument("stream: got true, allowed: false, because a batch has no streams");
  }
  return request;
}

// Whether the output may have calls of tools.
bool OffersTools(const CompletionRequest& request) {
  const auto* chat = std::get_if<v1::Chat>(&request.prompt(0));
  return chat != nullptr && !chat->tools_json().empty();
}

}  // namespace

BatchRunner::BatchRunner(const Parts& parts, const BatchCounts& counts)
    : parts_(parts), run_id_(RandomHex()), counts_(counts) {}

absl::Status BatchRunner::Run(BatchProgress& progress) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(parts_.concurrency));
  num_working_ = parts_.concurrency;
  for (int i = 0; i < parts_.concurrency; ++i) threads.emplace_back([this] { Work(); });
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, kLookPeriod, [this] { return num_working_ == 0; });
    for (const std::string& problem : std::exchange(problems_, {})) progress.Say(problem);
    if (num_working_ == 0) break;
    progress.Show(counts_);
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  TANDEM_RETURN_IF_ERROR(parts_.output.Sync());
  return status_;
}

void BatchRunner::Stop() { End(absl::CancelledError("interrupted")); }

BatchCounts BatchRunner::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void BatchRunner::Work() {
  const std::vector<BatchInput::Entry>& entries = parts_.input.entries();
  while (true) {
    const BatchInput::Entry* entry = nullptr;
    {
      const std::lock_guard lock(mutex_);
      while (next_ < entries.size() &&
             parts_.output.answered().contains(entries[next_].custom_id)) {
        ++next_;
      }
      if (!status_.ok() || next_ == entries.size()) break;
      entry = &entries[next_++];
    }
    const auto line = parts_.input.Read(*entry);
    if (!line.ok()) {
      End(line.status());
      break;
    }
    const std::string request_id =
        absl::StrCat(line->is_chat ? "chatcmpl-" : "cmpl-", run_id_, "-", entry->number);
    const auto outcome = Process(*line, request_id);
    absl::Status status = outcome.status();
    if (status.ok()) {
      status = parts_.output.Append(
          BatchAnswerLine(line->custom_id, request_id, outcome->http_status, outcome->body));
    }
    if (!status.ok()) {
      End(status);
      break;
    }
    Note(entry->number, *outcome);
  }
  const std::lock_guard lock(mutex_);
  --num_working_;
  changed_.notify_all();
}

absl::StatusOr<BatchRunner::Outcome> BatchRunner::Process(const BatchLine& line,
                                                          const std::string& request_id) {
  const auto request = ParseBody(line);
  if (!request.ok()) {
    const gateway::ApiError error = gateway::ErrorOf(request.status());
    return Outcome{
        .http_status = kRefusedHttp, .body = gateway::ErrorBody(error), .problem = error.message};
  }
  for (size_t num_pauses = 0;;) {
    Outcome outcome;
    const CallEnd end = Try(*request, request_id, &outcome);
    if (end.status.ok()) return outcome;
    if (end.retry_milliseconds.has_value()) {  // busy: it goes on as soon as there is room
      if (!Pause(1e-3 * *end.retry_milliseconds)) return absl::CancelledError("interrupted");
      continue;
    }
    if (absl::IsUnavailable(end.status) && num_pauses < kPauses.size()) {
      if (!Pause(kPauses[num_pauses++])) return absl::CancelledError("interrupted");
      continue;
    }
    if (EndsBatch(end.status)) return end.status;
    const gateway::ApiError error = gateway::ErrorOf(end);
    return Outcome{
        .http_status = error.http, .body = gateway::ErrorBody(error), .problem = error.message};
  }
}

CallEnd BatchRunner::Try(CompletionRequest request, const std::string& request_id,
                         Outcome* outcome) {
  const v1::ServerInfo& served = parts_.served;
  if (OffersTools(request) && !served.tool_call_format().empty()) request.ShowSpecialTokens();
  const auto tenant = gateway::TenantName(request.answer().user);
  if (!tenant.ok()) return {.status = tenant.status(), .is_from_router = true};
  CompletionResponse response({.id = request_id,
                               .created = static_cast<int64_t>(std::time(nullptr)),
                               .model = request.model().empty() ? served.model() : request.model(),
                               .tool_call_format = served.tool_call_format()},
                              request.answer(), request.num_prompts());
  for (size_t prompt = 0; prompt < request.num_prompts(); ++prompt) {
    if (request.answer().echo) {
      const auto echo = EchoOf(request, prompt);
      if (!echo.ok()) return {.status = echo.status()};
      response.SetEcho(prompt, *echo);
    }
    std::string id = request_id;
    if (request.num_prompts() > 1) absl::StrAppend(&id, "-", prompt);
    CallEnd end = parts_.client.Generate(
        request.Take(prompt, id), *tenant,
        [&](const v1::GenerateResponse& message) { (void)response.Add(prompt, message); });
    if (!end.status.ok()) return end;
  }
  if (!response.is_complete()) {
    return {.status = Internal("the router ended a stream without a completion")};
  }
  outcome->body = response.Body();
  outcome->tokens = response.usage().tokens().completion_tokens();
  return {};
}

absl::StatusOr<std::string> BatchRunner::EchoOf(const CompletionRequest& request, size_t prompt) {
  const gateway::Prompt& given = request.prompt(prompt);
  if (const auto* text = std::get_if<std::string>(&given)) return *text;
  const auto* ids = std::get_if<v1::TokenIds>(&given);
  if (ids == nullptr) return std::string();
  return parts_.questions.Detokenize({ids->ids().begin(), ids->ids().end()},
                                     request.skips_special_tokens());
}

bool BatchRunner::Pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [this] { return !status_.ok(); });
}

void BatchRunner::End(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = status;
    changed_.notify_all();
  }
  parts_.client.Cancel();
}

void BatchRunner::Note(int64_t number, const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  counts_.tokens += outcome.tokens;
  if (outcome.problem.empty()) {
    ++counts_.answered;
    return;
  }
  ++counts_.failed;
  if (MustBeCorrected(outcome.http_status)) ++counts_.refused;
  problems_.push_back(
      absl::StrCat("line ", number, ": ", outcome.http_status, ": ", outcome.problem));
}

}  // namespace tandem::cli
