#include "services/gateway/api/tools/llama3_calls.h"

#include <utility>

namespace tandem::gateway {

void Llama3Calls::Push(std::string_view text, ToolOutput* output) {
  held_.append(text);
  while (!held_.empty() && Step(output)) {
  }
}

void Llama3Calls::BecomeText(const std::string& before, ToolOutput* output) {
  if (sink_.num_calls() == 0) output->content += std::exchange(opening_, {});
  output->content += before + std::exchange(held_, {});
  call_.reset();
  is_text_ = true;
}

bool Llama3Calls::Step(ToolOutput* output) {
  if (is_text_) {
    output->content += std::exchange(held_, {});
    return false;
  }
  if (!call_.has_value()) return StepBetween(output);
  held_.erase(0, call_->Push(held_, &sink_, output));
  if (call_->state() == CallReader::State::kFailed) {
    BecomeText(call_->Unwritten(), output);
  } else if (call_->state() == CallReader::State::kDone) {
    call_.reset();
  }
  return true;
}

bool Llama3Calls::StepBetween(ToolOutput* output) {
  const size_t space = SpaceBefore(held_);
  const std::string_view rest = std::string_view(held_).substr(space);
  const bool is_first = sink_.num_calls() == 0;
  size_t skipped = space;
  if (space > kMaxHeldSpace) {
    BecomeText("", output);
    return false;
  }
  if (rest.empty()) return false;
  if (rest[0] == '{') {
    call_.emplace(names_);
  } else if (!is_first && rest[0] == ';') {
    ++skipped;
  } else if (is_first && opening_.empty() && kTag.starts_with(rest.substr(0, kTag.size()))) {
    if (rest.size() < kTag.size()) return false;
    skipped += kTag.size();
  } else {
    BecomeText("", output);
    return false;
  }
  if (is_first) opening_ += held_.substr(0, skipped);
  held_.erase(0, skipped);
  return true;
}

void Llama3Calls::Finish(ToolOutput* output) {
  const bool is_between_calls = !is_text_ && !call_.has_value() && sink_.num_calls() > 0;
  if (is_between_calls && SpaceBefore(held_) == held_.size()) return held_.clear();
  BecomeText(call_.has_value() ? call_->Unwritten() : "", output);
}

}  // namespace tandem::gateway
