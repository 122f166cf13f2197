#include "services/router/client_calls/generate_calls.h"

#include <string>
#include <utility>

#include "common/log/trace_context.h"
#include "common/monotonic_seconds.h"
#include "common/status.h"
#include "services/router/client_calls/generate_call.h"
#include "services/router/fleet/fleet_drafters.h"

namespace tandem {
namespace {

constexpr size_t kMaxTenantBytes = 256;
// Log-probabilities of a prompt come faster than a usual network takes them: 50 KB for 64 tokens.
constexpr size_t kPromptBufferBytes = 4 << 20;

}  // namespace

GenerateCalls::GenerateCalls(CallContext context, Options options, RouterMetrics* metrics)
    : context_(std::move(context)),
      options_(std::move(options)),
      metrics_(metrics),
      log_(options_.log_prompts) {}

void GenerateCalls::WaitForClient() {
  auto call = std::make_unique<GenerateCall>(++last_call_, options_.buffer_bytes,
                                             options_.padding_bytes, this);
  GenerateCall* waiting = call.get();
  calls_.emplace(last_call_, std::move(call));
  waiting->WaitForClient(context_.service, context_.queue);
}

void GenerateCalls::Take(std::unique_ptr<ClientCall> call) {
  ClientCall& taken = *call;
  calls_.emplace(taken.id(), std::move(call));
  Begin(taken);
}

void GenerateCalls::OnOpened(ClientCall& call) {
  WaitForClient();
  Begin(call);
}

void GenerateCalls::Begin(ClientCall& call) {
  ++num_open_;
  if (const auto refusal = call.Check(*context_.gate)) {
    return Finish(call, refusal->status, 0, refusal->retry_milliseconds);
  }
  if (context_.fleet->promised() == nullptr) {
    return Finish(call, Unavailable("not ready: no verifier has attached yet"), 0,
                  kRetryMilliseconds);
  }
  if (call.tenant().size() > kMaxTenantBytes) {
    return Finish(
        call,
        InvalidArgument("metadata tandem-tenant: got " + std::to_string(call.tenant().size()) +
                        " bytes, allowed: at most " + std::to_string(kMaxTenantBytes)),
        0, 0);
  }
  const double arrived_at = MonotonicSeconds();
  if (const auto refusal = context_.fleet->RefusesAll(arrived_at)) {
    log_.TurnedAway(call.request(), call.traceparent(), refusal->status, arrived_at);
    return Finish(call, refusal->status, 0, refusal->retry_milliseconds);
  }
  Validate(call, arrived_at);
}

void GenerateCalls::Validate(ClientCall& call, double arrived_at) {
  const size_t text_bytes =
      call.request().prompt().size() + call.request().speculation().prediction().text().size();
  if (text_bytes <= kMaxShortTextBytes && !IsLong(call.request().chat())) {
    OnValidated(call.id(), arrived_at, context_.validator->Validate(call.request(), Served()));
    return;
  }
  // A copy of the request, because the call may be gone before the prompt is tokenized.
  struct Job {
    v1::GenerateRequest request;
    ServedModel served;
    absl::StatusOr<GenerationRequest> validated;
  };
  auto job = std::make_shared<Job>(Job{call.request(), Served(), absl::UnknownError("")});
  const bool taken = context_.background->Run(
      [validator = context_.validator, job] {
        job->validated = validator->Validate(job->request, job->served);
      },
      [this, job, arrived_at, id = call.id()] {
        OnValidated(id, arrived_at, std::move(job->validated));
      });
  if (!taken) Finish(call, TooMuchWork(), 0, kRetryMilliseconds);
}

void GenerateCalls::OnValidated(CallId id, double arrived_at,
                                absl::StatusOr<GenerationRequest> request) {
  const auto found = calls_.find(id);
  if (found == calls_.end() || found->second->finished()) return;
  ClientCall& call = *found->second;
  if (!request.ok()) {
    log_.Refused(call.request(), call.traceparent(), request.status());
    return Finish(call, request.status(), 0, 0);
  }
  request->arrived_at = arrived_at;
  request->open.set_cache_salt(call.tenant());
  if (std::string traceparent = call.traceparent(); ParseTraceparent(traceparent)) {
    request->open.set_traceparent(std::move(traceparent));
  }
  const bool is_chat = call.request().has_chat();
  log_.Started(id, is_chat ? std::exchange(request->rendered_chat, {}) : call.request().prompt(),
               *request, arrived_at);
  call.DropRequest();
  if (request->open.has_prompt_logprobs()) call.RaiseBuffer(kPromptBufferBytes);
  choices_.Begin(id, *request);
  context_.fleet->OnRequest(id, *std::move(request), MonotonicSeconds());
}

void GenerateCalls::Write(WriteResponse write) {
  if (write.response.has_completion()) log_.Completed(write.call, write.response.completion());
  const Choices::Choice choice = choices_.Of(write.call);
  const auto found = calls_.find(choice.call);
  if (found == calls_.end()) return;
  ClientCall& call = *found->second;
  choices_.OnTokens(write.call, write.response.token_ids_size());
  write.response.set_index(static_cast<int32_t>(choice.index));
  // Before its first token, a choice has log-probabilities of its prompt.
  const bool has_begun = write.response.token_ids_size() > 0 || write.response.has_completion();
  if (call.Write(std::move(write.response))) {
    if (has_begun) BeginNext(choice);
    return;
  }
  const absl::Status status =
      ResourceExhausted("client too slow: more than " + std::to_string(options_.buffer_bytes) +
                        " bytes of the stream wait to be read");
  CancelChoices(call, 0, status);
  Finish(call, status, call.num_sent_tokens(), 0);
}

void GenerateCalls::BeginNext(const Choices::Choice& newest) {
  std::optional<GenerationRequest> next = choices_.TakeNext(newest, last_call_ + 1);
  if (!next.has_value()) return;
  const double now = MonotonicSeconds();
  next->arrived_at = now;
  log_.Started(++last_call_, /*prompt=*/"", *next, now);
  context_.fleet->OnRequest(last_call_, *std::move(next), now);
}

void GenerateCalls::Finish(const FinishCall& finish) {
  const Choices::Choice choice = choices_.Of(finish.call);
  const auto found = calls_.find(choice.call);
  if (found == calls_.end()) return;
  ClientCall& call = *found->second;
  log_.Finished(finish.call, finish.status, finish.emitted_tokens, finish.slot, MonotonicSeconds());
  if (finish.status.ok() && !choices_.OnEnded(finish.call)) return;
  const int num_tokens =
      finish.emitted_tokens +
      CancelChoices(call, finish.call, absl::CancelledError("another choice of the call failed"));
  Finish(call, finish.status, num_tokens, finish.retry_milliseconds);
}

int GenerateCalls::CancelChoices(const ClientCall& call, CallId ended, const absl::Status& why) {
  const double now = MonotonicSeconds();
  int num_tokens = 0;
  // The newest choice may wait for the slot of an older one, so it goes first.
  for (const Choices::Running& choice : choices_.End(call.id(), call.num_sent_tokens(), ended)) {
    const std::optional<SlotLife> slot = context_.fleet->OnCancel(choice.id, now);
    log_.Finished(choice.id, why, choice.num_tokens, slot, now);
    num_tokens += choice.num_tokens;
  }
  return num_tokens;
}

void GenerateCalls::Finish(ClientCall& call, const absl::Status& status, int emitted_tokens,
                           int retry_milliseconds) {
  if (!call.finished()) metrics_->OnFinished(status.code());
  call.Finish(status, emitted_tokens, retry_milliseconds);
}

void GenerateCalls::OnCanceled(ClientCall& call) {
  metrics_->OnFinished(absl::StatusCode::kCancelled);
  CancelChoices(call, 0, absl::CancelledError("the client left, or its deadline passed"));
}

void GenerateCalls::OnClosed(ClientCall& call, bool opened) {
  if (opened) --num_open_;
  calls_.erase(call.id());
}

ServedModel GenerateCalls::Served() const {
  const v1::AttachReply& verifier = *context_.fleet->promised();
  ServedModel served;
  served.model = context_.model;
  served.draft_models = DraftModelNames(*context_.fleet);
  served.self_drafters = SelfDrafterNames(*context_.fleet);
  served.vocabulary_size = verifier.vocabulary_size();
  served.max_context_tokens = verifier.max_context_tokens();
  served.context_limited_by_pages = verifier.context_limited_by_pages();
  served.end_of_text_ids = options_.end_of_text_ids;
  return served;
}

}  // namespace tandem
