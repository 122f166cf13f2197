#include "services/gateway/calls/completion_call.h"

#include <utility>

#include "common/status.h"
#include "services/gateway/api/answers/json_text.h"
#include "services/gateway/calls/answers.h"

namespace tandem::gateway {

CompletionCall::CompletionCall(Context context, CompletionRequest request,
                               std::shared_ptr<Reply> reply)
    : context_(std::move(context)),
      request_(std::move(request)),
      reply_(std::move(reply)),
      streams_(request_.num_prompts()) {
  reply_->notes().request_id = context_.id;
}

void CompletionCall::Start() {
  // The server says how its model writes calls.
  const bool needs_info = request_.model().empty() || !request_.answer().tool_names.empty();
  if (!needs_info) return OnModel(request_.model(), "");
  questions_.push_back(
      router().Info(reply_->executor(), context_.metadata,
                    [self = shared_from_this()](const CallEnd& end, const v1::ServerInfo& info) {
                      if (self->reply_ == nullptr) return;
                      if (!end.status.ok()) return self->Fail(end);
                      const std::string& given = self->request_.model();
                      self->OnModel(given.empty() ? info.model() : given, info.tool_call_format());
                    }));
}

void CompletionCall::OnModel(const std::string& model, const std::string& tool_call_format) {
  const bool finds_calls = !request_.answer().tool_names.empty() && !tool_call_format.empty();
  if (finds_calls) request_.ShowSpecialTokens();
  response_.emplace(
      CompletionResponse::Header{context_.id, context_.created, model, tool_call_format},
      request_.answer(), request_.num_prompts());
  StartMore();
}

void CompletionCall::StartMore() {
  while (reply_ != nullptr && next_prompt_ < request_.num_prompts() &&
         num_running_ < kMaxRunningPrompts) {
    ++num_running_;
    StartPrompt(next_prompt_++);
  }
}

void CompletionCall::StartPrompt(size_t prompt) {
  if (!request_.answer().echo) return Generate(prompt);
  const Prompt& given = request_.prompt(prompt);
  if (const auto* text = std::get_if<std::string>(&given)) {
    if (SetEcho(prompt, *text)) Generate(prompt);
    return;
  }
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = std::get<v1::TokenIds>(given).ids();
  detokenize.set_skip_special_tokens(request_.skips_special_tokens());
  questions_.push_back(router().Detokenize(
      reply_->executor(), std::move(detokenize), context_.metadata,
      [self = shared_from_this(), prompt](const CallEnd& end, const v1::DetokenizeResponse& text) {
        if (self->reply_ == nullptr) return;
        if (!end.status.ok()) return self->Fail(end);
        if (self->SetEcho(prompt, text.text())) self->Generate(prompt);
      }));
}

void CompletionCall::Generate(size_t prompt) {
  // The router's log has one id for each prompt.
  std::string id = context_.id;
  if (request_.num_prompts() > 1) id += "-" + std::to_string(prompt);
  streams_[prompt] = router().Generate(reply_->executor(), request_.Take(prompt, std::move(id)),
                                       context_.metadata, prompt, shared_from_this());
}

bool CompletionCall::Keep(size_t bytes) {
  const absl::Status kept = reply_->Keep(bytes);
  if (!kept.ok()) Fail({.status = kept, .is_from_router = true});
  return kept.ok();
}

bool CompletionCall::SetEcho(size_t prompt, const std::string& text) {
  // Each choice has a copy, and another one to find the tokens in.
  const size_t copies = (request_.answer().logprobs ? 2 : 1) * request_.answer().num_choices;
  if (!Keep(copies * text.size())) return false;
  response_->SetEcho(prompt, text);
  return true;
}

void CompletionCall::OnMessage(size_t prompt, const v1::GenerateResponse& message) {
  if (reply_ == nullptr) return;
  // Each choice keeps what is said of the prompt, until it has its first token.
  const bool is_of_prompt = message.has_prompt_start() || message.prompt_logprobs_size() > 0;
  if (!request_.answer().stream || is_of_prompt) {
    const size_t copies = is_of_prompt ? request_.answer().num_choices : 1;
    if (!Keep(copies * message.ByteSizeLong())) return;
  }
  const std::string events = response_->Add(prompt, message);
  if (request_.answer().stream && !events.empty()) {
    if (!std::exchange(has_begun_, true)) reply_->BeginStream();
    reply_->Write(events);
  }
  if (reply_ == nullptr || streams_[prompt] == nullptr) return;
  if (reply_->waiting_bytes() > kMaxWaitingBytes) {
    paused_.push_back(prompt);
  } else {
    streams_[prompt]->Next();
  }
}

void CompletionCall::OnWritten() {
  if (reply_ == nullptr || reply_->waiting_bytes() > kMaxWaitingBytes) return;
  for (const size_t prompt : std::exchange(paused_, {})) {
    if (streams_[prompt] != nullptr) streams_[prompt]->Next();
  }
}

void CompletionCall::OnEnd(size_t prompt, const CallEnd& end) {
  streams_[prompt].reset();
  if (reply_ == nullptr) return;
  --num_running_;
  if (!end.status.ok()) return Fail(end);
  StartMore();
  if (num_running_ > 0) return;
  if (response_->is_complete()) return Finish();
  Fail({.status = Internal("the router ended a stream without a completion")});
}

void CompletionCall::Fail(const CallEnd& end) {
  const ApiError error = ErrorOf(end);
  NoteFailure(*reply_, end);
  const std::shared_ptr<Reply> reply = reply_;
  LetGo();
  if (!has_begun_) return SendError(*reply, error);
  reply->Write(SseEvent(ErrorBody(error)));
  reply->Break();
}

void CompletionCall::Finish() {
  const std::shared_ptr<Reply> reply = reply_;
  const v1::Usage& usage = response_->usage().tokens();
  reply->notes().prompt_tokens = usage.prompt_tokens();
  reply->notes().completion_tokens = usage.completion_tokens();
  LetGo();
  if (!request_.answer().stream) return reply->Send(JsonAnswer(response_->Body()));
  if (!has_begun_) reply->BeginStream();
  reply->Write(response_->LastEvents());
  reply->End();
}

void CompletionCall::OnGone() { LetGo(); }

void CompletionCall::LetGo() {
  reply_.reset();
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->Cancel();
  }
  for (const RouterClient::Pending& question : std::exchange(questions_, {})) {
    if (question != nullptr) question->Cancel();
  }
}

}  // namespace tandem::gateway
