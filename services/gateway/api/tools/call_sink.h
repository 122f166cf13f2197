// What the parsers of all formats share: they write calls and hold text back.
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_SINK_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_SINK_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "services/gateway/api/tools/call_reader.h"
#include "services/gateway/api/tools/tool_call_parser.h"

namespace tandem::gateway {

// Space that may come before a call is held back up to this size. A model that repeats spaces is
// not held up longer.
inline constexpr size_t kMaxHeldSpace = 256;

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
// Returns how many bytes at the beginning are space.
size_t SpaceBefore(std::string_view text);

// Writes the calls of one output.
class CallSink {
 public:
  void Begin(std::string_view name, ToolOutput* output);
  // Adds to the arguments of the call that began last.
  void AddArguments(const std::string& arguments, ToolOutput* output);
  // The call that began last is complete.
  void End() { ++num_complete_; }

  size_t num_calls() const { return num_calls_; }
  bool has_complete_calls() const { return num_calls_ > 0 && num_complete_ == num_calls_; }

 private:
  size_t num_calls_ = 0;
  size_t num_complete_ = 0;
};

// One call that a CallReader reads. It is written from its first argument on.
class ObjectCall {
 public:
  explicit ObjectCall(const ToolNames* names) : reader_(names) {}

  // Takes text, and writes what is known. Returns how many bytes were taken.
  size_t Push(std::string_view text, CallSink* sink, ToolOutput* output);
  CallReader::State state() const { return reader_.state(); }
  // Returns what was taken, after `before`, if no part of it was written.
  std::string Unwritten(std::string before = "") const {
    return begun_ ? std::string() : std::move(before) + reader_.raw();
  }

 private:
  CallReader reader_;
  bool begun_ = false;
};

// Text in which a tag is looked for. It holds back what may be the beginning of the tag, and the
// space before it.
class TagFinder {
 public:
  explicit TagFinder(std::string_view tag) : tag_(tag) {}

  // Adds text, and moves what is no part of a tag into `content`. Returns true if the tag came.
  // What follows the tag is then the rest, and the space before it is in space().
  bool Push(std::string_view text, std::string* content);
  // Returns the text that is held back, which this forgets.
  std::string TakeRest() { return std::exchange(held_, {}); }
  // The space before the tag that came last.
  const std::string& space() const { return space_; }

 private:
  std::string_view tag_;
  std::string held_;
  std::string space_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_SINK_H_
