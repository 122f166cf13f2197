#include "services/gateway/calls/completion_call.h"

#include <utility>

#include "common/status.h"
#include "services/gateway/api/json_text.h"
#include "services/gateway/calls/answers.h"

namespace tandem::gateway {

CompletionCall::CompletionCall(Context context, CompletionRequest request,
                               std::shared_ptr<Reply> reply)
    : context_(std::move(context)),
      request_(std::move(request)),
      reply_(std::move(reply)),
      streams_(request_.num_choices()) {
  reply_->notes().request_id = context_.id;
}

void CompletionCall::Start() {
  if (!request_.model().empty()) return OnModel(request_.model());
  router().Info(reply_->executor(), context_.metadata,
                [self = shared_from_this()](const CallEnd& end, const v1::ServerInfo& info) {
                  if (self->reply_ == nullptr) return;
                  if (!end.status.ok()) return self->Fail(end);
                  self->OnModel(info.model());
                });
}

void CompletionCall::OnModel(const std::string& model) {
  response_.emplace(CompletionResponse::Header{context_.id, context_.created, model},
                    request_.answer(), request_.num_choices());
  StartMore();
}

void CompletionCall::StartMore() {
  while (reply_ != nullptr && next_choice_ < request_.num_choices() &&
         num_running_ < kMaxRunningPrompts) {
    ++num_running_;
    StartChoice(next_choice_++);
  }
}

void CompletionCall::StartChoice(size_t choice) {
  if (!request_.answer().echo) return Generate(choice);
  const Prompt& prompt = request_.prompt(choice);
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    response_->SetEcho(choice, *text);
    return Generate(choice);
  }
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = std::get<v1::TokenIds>(prompt).ids();
  detokenize.set_skip_special_tokens(request_.skips_special_tokens());
  router().Detokenize(
      reply_->executor(), std::move(detokenize), context_.metadata,
      [self = shared_from_this(), choice](const CallEnd& end, const v1::DetokenizeResponse& text) {
        if (self->reply_ == nullptr) return;
        if (!end.status.ok()) return self->Fail(end);
        self->response_->SetEcho(choice, text.text());
        self->Generate(choice);
      });
}

void CompletionCall::Generate(size_t choice) {
  // The router's log has one id for each choice.
  std::string id = context_.id;
  if (request_.num_choices() > 1) id += "-" + std::to_string(choice);
  const v1::GenerateRequest request = request_.Take(choice, std::move(id));
  streams_[choice] =
      router().Generate(reply_->executor(), request, context_.metadata, choice, shared_from_this());
}

void CompletionCall::OnMessage(size_t choice, const v1::GenerateResponse& message) {
  if (reply_ == nullptr) return;
  const std::string events = response_->Add(choice, message);
  if (request_.answer().stream && !events.empty()) {
    if (!std::exchange(has_begun_, true)) reply_->BeginStream();
    reply_->Write(events);
  }
  if (reply_ == nullptr || streams_[choice] == nullptr) return;
  if (reply_->waiting_bytes() > kMaxWaitingBytes) {
    paused_.push_back(choice);
  } else {
    streams_[choice]->Next();
  }
}

void CompletionCall::OnWritten() {
  if (reply_ == nullptr || reply_->waiting_bytes() > kMaxWaitingBytes) return;
  for (const size_t choice : std::exchange(paused_, {})) {
    if (streams_[choice] != nullptr) streams_[choice]->Next();
  }
}

void CompletionCall::OnEnd(size_t choice, const CallEnd& end) {
  streams_[choice].reset();
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
}

}  // namespace tandem::gateway
