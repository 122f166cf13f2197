#include "services/gateway/api/tools/hermes_calls.h"

#include <utility>

namespace tandem::gateway {

void HermesCalls::Push(std::string_view text, ToolOutput* output) {
  std::string rest(text);
  while (!rest.empty()) rest = Step(rest, output);
}

std::string HermesCalls::Step(const std::string& text, ToolOutput* output) {
  if (!call_.has_value()) {
    if (!finder_.Push(text, &output->content)) return "";
    call_.emplace(names_);
    return finder_.TakeRest();
  }
  if (call_->state() == CallReader::State::kReading) {
    const size_t taken = call_->Push(text, &sink_, output);
    if (call_->state() == CallReader::State::kFailed) {
      output->content += call_->Unwritten(Opening());
      call_.reset();
    }
    return text.substr(taken);
  }
  return StepAfter(text);
}

std::string HermesCalls::StepAfter(const std::string& text) {
  after_ += text;
  const size_t space = SpaceBefore(after_);
  const std::string_view rest = std::string_view(after_).substr(space);
  const bool is_end = rest.starts_with(kEnd);
  if (!is_end && kEnd.starts_with(rest) && space <= kMaxHeldSpace) return "";
  call_.reset();
  const std::string taken = std::exchange(after_, {});
  return is_end ? taken.substr(space + kEnd.size()) : taken;
}

void HermesCalls::Finish(ToolOutput* output) {
  if (call_.has_value()) output->content += call_->Unwritten(Opening());
  const std::string rest = finder_.TakeRest();
  const bool is_space = SpaceBefore(rest) == rest.size();
  if (!is_space || sink_.num_calls() == 0) output->content += rest;
}

}  // namespace tandem::gateway
