// Finds the calls of tools in a model's output.
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_TOOL_CALL_PARSER_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway {

// The names of the tools that a request offers.
using ToolNames = std::set<std::string, std::less<>>;

// A part of a call. The first part of each call has its name.
struct ToolCallDelta {
  size_t index = 0;       // the call, from 0
  std::string name;       // empty: this is a later part
  std::string arguments;  // to be appended
};

struct ToolOutput {
  std::string content;  // text outside calls
  std::vector<ToolCallDelta> calls;
};

// One output, whose text comes in pieces of any size. A call has the name of a tool that is
// offered. What looks like a call and is none becomes content, so an output without a call is
// content as it is. Beside calls, the marks of the format and the space between calls are dropped.
class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;
  virtual void Push(std::string_view text, ToolOutput* output) = 0;
  // The text has ended. A call that is not complete stays as it is.
  virtual void Finish(ToolOutput* output) = 0;
  // Whether there is a call, and each call has come to its end.
  virtual bool has_complete_calls() const = 0;
};

// Returns the parser of a format (ServerInfo.tool_call_format), or null if it has none. `names`
// must outlive it.
// - "hermes": <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number of them, also
//   between texts
// - "llama3_json": the output is {"name": …, "parameters": {…}}, or several of them with ";"
//   between them, after an optional <|python_tag|>
// - "mistral": [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]NAME{…}, or
//   [TOOL_CALLS]NAME[ARGS]{…}, any number of the last two
std::unique_ptr<ToolCallParser> MakeToolCallParser(std::string_view format, const ToolNames* names);

// The ids of Mistral's templates have nine letters and digits. Others have "call_" before more.
bool WantsShortCallIds(std::string_view format);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_TOOL_CALL_PARSER_H_
