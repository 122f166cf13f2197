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

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Writes the calls of one output.
class CallSink {
 public:
  // Begins a call, whose name is known at once or is read by a CallReader.
  void Begin(std::string_view name, ToolOutput* output);
  // Adds to the arguments of the call that began last.
  void AddArguments(std::string arguments, ToolOutput* output);
  size_t num_calls() const { return num_calls_; }

 private:
  size_t num_calls_ = 0;
};

// One call that a CallReader reads.
class ObjectCall {
 public:
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
  // What follows the tag is then the rest.
  bool Push(std::string_view text, std::string* content);
  // Returns the text that is held back, which this forgets.
  std::string TakeRest() { return std::exchange(held_, {}); }

 private:
  std::string_view tag_;
  std::string held_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_SINK_H_
