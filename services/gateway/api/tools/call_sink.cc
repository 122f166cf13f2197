#include "services/gateway/api/tools/call_sink.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {

void CallSink::Begin(std::string_view name, ToolOutput* output) {
  output->calls.push_back({.index = num_calls_++, .name = std::string(name), .arguments = {}});
}

void CallSink::AddArguments(std::string arguments, ToolOutput* output) {
  if (arguments.empty()) return;
  const size_t index = num_calls_ - 1;
  if (output->calls.empty() || output->calls.back().index != index) {
    output->calls.push_back({.index = index, .name = {}, .arguments = {}});
  }
  output->calls.back().arguments += arguments;
}

size_t ObjectCall::Push(std::string_view text, CallSink* sink, ToolOutput* output) {
  const size_t taken = reader_.Push(text);
  // What has no arguments yet may still turn out to be no call, but a name alone is enough.
  if (reader_.name().empty()) return taken;
  if (!std::exchange(begun_, true)) sink->Begin(reader_.name(), output);
  sink->AddArguments(reader_.TakeArguments(), output);
  return taken;
}

bool TagFinder::Push(std::string_view text, std::string* content) {
  held_.append(text);
  const size_t found = held_.find(tag_);
  size_t end = found;
  if (found == std::string::npos) {
    // The longest end of the text that the tag may go on from.
    size_t partial = std::min(held_.size(), tag_.size() - 1);
    while (partial > 0 && !tag_.starts_with(std::string_view(held_).substr(held_.size() - partial)))
      --partial;
    end = held_.size() - partial;
  }
  size_t text_end = end;
  while (text_end > 0 && IsJsonSpace(held_[text_end - 1])) --text_end;
  content->append(held_, 0, text_end);
  held_.erase(0, found == std::string::npos ? text_end : found + tag_.size());
  return found != std::string::npos;
}

}  // namespace tandem::gateway
