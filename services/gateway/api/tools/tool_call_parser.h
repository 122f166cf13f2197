// Finds the calls of tools in a model's output.
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_TOOL_CALL_PARSER_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway {

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

// One output. Its text comes in pieces of any size, and each piece of text ends up in the content
// or in a call. What looks like a call and is none becomes content. Space before a call, and after
// the last one, is dropped.
class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;
  virtual void Push(std::string_view text, ToolOutput* output) = 0;
  // The text has ended. A call that is not complete stays as it is.
  virtual void Finish(ToolOutput* output) = 0;
  // Number of calls whose names are known.
  virtual size_t num_calls() const = 0;
};

// Returns the parser of a format (ServerInfo.tool_call_format), or null if it has none:
// - "hermes": <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number of them, also
//   between texts
// - "llama3_json": the output is {"name": …, "parameters": {…}}, or several of them with ";"
//   between them, after an optional <|python_tag|>
// - "mistral": [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]NAME{…}, or
//   [TOOL_CALLS]NAME[ARGS]{…}, any number of the last two
std::unique_ptr<ToolCallParser> MakeToolCallParser(std::string_view format);

// The ids of Mistral's templates have nine letters and digits. Others have "call_" before more.
bool WantsShortCallIds(std::string_view format);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_TOOL_CALL_PARSER_H_
