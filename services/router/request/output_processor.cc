#include "services/router/request/output_processor.h"

#include <algorithm>
#include <utility>

#include "common/tokenizer/text/unicode.h"

namespace tandem {

namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

OutputProcessor::OutputProcessor(const GenerationRequest* request, const Tokenizer* tokenizer)
    : request_(request),
      tokenizer_(tokenizer),
      detokenizer_(tokenizer, request->skip_special_tokens),
      matcher_(request->stop_strings) {}

bool OutputProcessor::IsStopToken(int32_t token_id) const {
  return std::binary_search(request_->stop_token_ids.begin(), request_->stop_token_ids.end(),
                            token_id);
}

bool OutputProcessor::Push(int32_t token_id, v1::TokenSource source, v1::TokenLogprobs* logprobs) {
  ++num_tokens_;
  const bool may_stop = num_tokens_ > request_->min_tokens;
  response_.add_token_ids(token_id);
  response_.add_sources(source);
  if (request_->wants_logprobs) {
    v1::TokenLogprobs* added = response_.add_logprobs();
    if (logprobs != nullptr) *added = std::move(*logprobs);
    if (request_->logprobs_with_text) AddText(token_id, added);
  }

  if (may_stop && IsStopToken(token_id)) {
    // The matcher's text is released without a match, because the token itself ends the output.
    if (request_->include_stop_in_output) {
      response_.mutable_text()->append(matcher_.Finish() + detokenizer_.Push(token_id));
    }
    EndText();
    completion_.set_finish_reason(v1::FINISH_REASON_STOP);
    completion_.set_stop_token_id(token_id);
    return true;
  }

  StopStringMatcher::Step step = matcher_.Push(detokenizer_.Push(token_id), may_stop);
  response_.mutable_text()->append(step.text);
  if (step.stop_string.has_value()) {
    if (request_->include_stop_in_output) response_.mutable_text()->append(*step.stop_string);
    completion_.set_finish_reason(v1::FINISH_REASON_STOP);
    completion_.set_stop_string(*step.stop_string);
    return true;
  }
  if (num_tokens_ >= request_->max_tokens) {
    EndText();
    completion_.set_finish_reason(v1::FINISH_REASON_LENGTH);
    return true;
  }
  return false;
}

void OutputProcessor::PushPrompt(int32_t token_id, v1::TokenLogprobs& logprobs) {
  ++num_scores_;
  v1::TokenLogprobs* const added = response_.add_prompt_logprobs();
  *added = std::move(logprobs);
  if (request_->logprobs_with_text) AddText(token_id, added);
}

template <typename Entry>
void OutputProcessor::FillText(int32_t token_id, Entry* entry) const {
  const std::string bytes = tokenizer_->TokenBytes(token_id);
  std::string incomplete;
  AppendRepairedUtf8(bytes, incomplete, *entry->mutable_text());
  if (!incomplete.empty()) entry->mutable_text()->append(kReplacement);
  entry->set_bytes(bytes);
}

void OutputProcessor::AddText(int32_t token_id, v1::TokenLogprobs* logprobs) const {
  FillText(token_id, logprobs);
  for (v1::TopLogprob& top : *logprobs->mutable_top()) FillText(top.token_id(), &top);
}

void OutputProcessor::EndText() {
  response_.mutable_text()->append(matcher_.Finish() + detokenizer_.Finish());
}

v1::GenerateResponse OutputProcessor::Take() {
  v1::GenerateResponse response;
  response.Swap(&response_);
  response.set_request_id(request_->request_id);
  if (!std::exchange(has_begun_, true) && request_->open.has_prompt_logprobs()) {
    v1::PromptStart* const start = response.mutable_prompt_start();
    start->set_token_id(request_->prompt_token_ids.front());
    if (request_->logprobs_with_text) FillText(start->token_id(), start);
  }
  return response;
}

}  // namespace tandem
