#include "services/gateway/api/tools/mistral_calls.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {
namespace {

constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kId = "[CALL_ID]";
constexpr size_t kMaxNameBytes = 64;  // OpenAI's limit for the name of a function; ids are shorter

bool IsOfAName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

size_t NameBefore(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), IsOfAName) - text.begin());
}

// What a text says about a call in the form NAME{…}, NAME[ARGS]{…} or NAME[CALL_ID]ID[ARGS]{…}.
struct NamedCall {
  enum class Verdict { kCall, kNoCall, kNeedsMore };
  Verdict verdict = Verdict::kNoCall;
  size_t name_bytes = 0;
  size_t arguments_at = 0;
};

// Moves `at` behind the mark if the text has it there. kNeedsMore: the text ends inside of it.
NamedCall::Verdict Take(std::string_view text, std::string_view mark, size_t* at) {
  const std::string_view here = text.substr(*at, mark.size());
  if (here == mark) {
    *at += mark.size();
    return NamedCall::Verdict::kCall;
  }
  return mark.starts_with(here) ? NamedCall::Verdict::kNeedsMore : NamedCall::Verdict::kNoCall;
}

NamedCall ReadNamedCall(std::string_view text) {
  using Verdict = NamedCall::Verdict;
  NamedCall call;
  call.name_bytes = NameBefore(text);
  if (call.name_bytes == 0 || call.name_bytes > kMaxNameBytes) return call;
  size_t at = call.name_bytes;
  const Verdict id = Take(text, kId, &at);
  if (id == Verdict::kCall) {
    const size_t id_bytes = NameBefore(text.substr(at));
    if (id_bytes > kMaxNameBytes) return call;
    at += id_bytes;
  }
  const Verdict args = Take(text, kArgs, &at);
  if (at == text.size() || id == Verdict::kNeedsMore || args == Verdict::kNeedsMore) {
    call.verdict = Verdict::kNeedsMore;
  } else if (text[at] == '{' && (id == Verdict::kNoCall || args == Verdict::kCall)) {
    call.verdict = Verdict::kCall;
    call.arguments_at = at;
  }
  return call;
}

}  // namespace

void MistralCalls::Push(std::string_view text, ToolOutput* output) {
  held_.append(text);
  while (!held_.empty() && Step(output)) {
  }
}

bool MistralCalls::Step(ToolOutput* output) {
  switch (at_) {
    case At::kText:
      return StepText(output);
    case At::kMark:
    case At::kList:
      return StepBetween(output);
    case At::kObject:
      return StepObject(output);
    case At::kName:
      return StepName(output);
    case At::kArguments:
      return StepArguments(output);
  }
  return false;
}

void MistralCalls::Skip(size_t size) {
  opening_ += held_.substr(0, size);
  held_.erase(0, size);
}

void MistralCalls::BecomeText(const std::string& more, ToolOutput* output) {
  output->content += std::exchange(opening_, {}) + more;
  call_.reset();
  at_ = At::kText;
}

bool MistralCalls::StepText(ToolOutput* output) {
  if (!finder_.Push(std::exchange(held_, {}), &output->content)) return false;
  held_ = finder_.TakeRest();
  opening_ = finder_.space() + std::string(kMark);
  at_ = At::kMark;
  return true;
}

bool MistralCalls::StepBetween(ToolOutput* output) {
  const size_t space = SpaceBefore(held_);
  if (opening_.size() + space > kMaxHeldSpace + kMark.size()) {
    BecomeText("", output);
    return true;
  }
  Skip(space);
  if (held_.empty()) return false;
  const char c = held_[0];
  if (c == '{') {
    call_.emplace(names_);
    is_list_ = at_ == At::kList;
    at_ = At::kObject;
  } else if (at_ == At::kMark && c == '[') {
    Skip(1);
    at_ = At::kList;
    list_has_call_ = false;
  } else if (at_ == At::kMark) {
    at_ = At::kName;
  } else if (c == ',' && list_has_call_) {
    Skip(1);
  } else {  // The list has ended, or it is none.
    if (c == ']' && list_has_call_) {
      held_.erase(0, 1);
      opening_.clear();
    }
    BecomeText("", output);
  }
  return true;
}

bool MistralCalls::StepObject(ToolOutput* output) {
  held_.erase(0, call_->Push(held_, &sink_, output));
  if (call_->state() == CallReader::State::kReading) return true;
  if (call_->state() == CallReader::State::kFailed) {
    const std::string unwritten = call_->Unwritten(opening_);
    opening_.clear();
    BecomeText(unwritten, output);
    return true;
  }
  opening_.clear();
  call_.reset();
  list_has_call_ = is_list_;
  at_ = is_list_ ? At::kList : At::kText;
  return true;
}

bool MistralCalls::StepName(ToolOutput* output) {
  const NamedCall call = ReadNamedCall(held_);
  if (call.verdict == NamedCall::Verdict::kNeedsMore) return false;
  const std::string name = held_.substr(0, call.name_bytes);
  if (call.verdict == NamedCall::Verdict::kNoCall || !names_->contains(name)) {
    BecomeText("", output);
    return true;
  }
  sink_.Begin(name, output);
  opening_.clear();
  held_.erase(0, call.arguments_at);
  end_ = JsonValueEnd();
  at_ = At::kArguments;
  return true;
}

bool MistralCalls::StepArguments(ToolOutput* output) {
  const size_t size = end_.Push(held_);
  sink_.AddArguments(held_.substr(0, size), output);
  held_.erase(0, size);
  if (end_.ended()) {
    sink_.End();
    at_ = At::kText;
  }
  return true;
}

void MistralCalls::Finish(ToolOutput* output) {
  if (call_.has_value()) {
    const std::string unwritten = call_->Unwritten(opening_);
    opening_.clear();
    BecomeText(unwritten, output);
  }
  if (at_ == At::kList && list_has_call_) opening_.clear();
  const std::string rest = finder_.TakeRest() + std::exchange(held_, {});
  const bool is_space = SpaceBefore(rest) == rest.size();
  if (is_space && opening_.empty() && sink_.num_calls() > 0) return;
  BecomeText(rest, output);
}

}  // namespace tandem::gateway
