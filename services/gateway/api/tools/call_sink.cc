#include "services/gateway/api/tools/call_sink.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {

size_t SpaceBefore(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsJsonSpace(text[size])) ++size;
  return size;
}

void CallSink::Begin(std::string_view name, ToolOutput* output) {
  output->calls.push_back({.index = num_calls_++, .name = std::string(name), .arguments = {}});
}

void CallSink::AddArguments(const std::string& arguments, ToolOutput* output) {
  if (arguments.empty()) return;
  const size_t index = num_calls_ - 1;
  if (output->calls.empty() || output->calls.back().index != index) {
    output->calls.push_back({.index = index, .name = {}, .arguments = {}});
  }
  output->calls.back().arguments += arguments;
}

size_t ObjectCall::Push(std::string_view text, CallSink* sink, ToolOutput* output) {
  const size_t taken = reader_.Push(text);
  if (!begun_ && !reader_.is_call()) return taken;
  if (!std::exchange(begun_, true)) sink->Begin(reader_.name(), output);
  sink->AddArguments(reader_.TakeArguments(), output);
  if (reader_.state() == CallReader::State::kDone) sink->End();
  return taken;
}

bool TagFinder::Push(std::string_view text, std::string* content) {
  held_.append(text);
  const size_t found = held_.find(tag_);
  size_t end = found;
  if (found == std::string::npos) {
    // The longest end of the text that the tag may go on from.
    size_t partial = std::min(held_.size(), tag_.size() - 1);
    while (partial > 0 &&
           !tag_.starts_with(std::string_view(held_).substr(held_.size() - partial))) {
      --partial;
    }
    end = held_.size() - partial;
  }
  size_t text_end = end;
  while (text_end > 0 && IsJsonSpace(held_[text_end - 1])) --text_end;
  if (end - text_end > kMaxHeldSpace) text_end = end;
  content->append(held_, 0, text_end);
  if (found == std::string::npos) {
    held_.erase(0, text_end);
    return false;
  }
  space_ = held_.substr(text_end, end - text_end);
  held_.erase(0, found + tag_.size());
  return true;
}

}  // namespace tandem::gateway
