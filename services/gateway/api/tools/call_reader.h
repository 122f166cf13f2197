// Reads one call of a tool as a model writes it: {"name": "…", "arguments": {…}}.
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_READER_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_READER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "services/gateway/api/tools/tool_call_parser.h"

namespace tandem::gateway {

// Finds the end of a JSON value in a text that comes in pieces. It does not check the grammar.
class JsonValueEnd {
 public:
  // Returns how many bytes of `text` belong to the value. All of them, unless the value ended. A
  // number or a word ends before a comma, a bracket or a space.
  size_t Push(std::string_view text);
  bool ended() const { return ended_; }

 private:
  int depth_ = 0;
  bool begun_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool ended_ = false;
};

// Takes the object in pieces of any size, and gives the arguments in pieces as soon as the name is
// known. The arguments may be named "parameters", and may be a text with the object. It fails for
// what has no name, the name of no tool, or arguments twice.
class CallReader {
 public:
  enum class State { kReading, kDone, kFailed };

  // `names` must outlive the reader.
  explicit CallReader(const ToolNames* names) : names_(names) {}

  // Returns how many bytes of `text` were taken: all of them, unless the object ended or what came
  // is no call.
  size_t Push(std::string_view text);

  State state() const { return state_; }
  // Whether it is a call for certain: it has the name of a tool, and its arguments have begun or it
  // is done. It stays one if something fails later.
  bool is_call() const { return !name_.empty() && begun_; }
  const std::string& name() const { return name_; }
  // Returns the arguments that came since the last call of this. PRECOND: it was a call once.
  std::string TakeArguments() { return std::exchange(arguments_, {}); }
  // Everything that was taken, for a text that turned out to be no call.
  const std::string& raw() const { return raw_; }

 private:
  enum class At { kBegin, kKey, kColon, kValue, kInValue, kComma };

  // Takes one byte between values. Returns false if it does not belong here.
  bool PushSyntax(char c);
  void BeginValue();
  void AddToValue(std::string_view part);
  void EndValue();

  const ToolNames* names_;
  State state_ = State::kReading;
  At at_ = At::kBegin;
  JsonValueEnd end_;
  bool is_key_ = false;        // the value that is read is a key
  bool is_arguments_ = false;  // the value that is read is the arguments
  bool is_text_ = false;       // the arguments are a text or null, which is known at its end
  bool has_arguments_ = false;
  bool begun_ = false;  // there are arguments, or it is known that there are none
  std::string key_;
  std::string value_;  // the key or the value that is read, unless its parts go to arguments_
  std::string name_;
  std::string arguments_;
  std::string raw_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_CALL_READER_H_
