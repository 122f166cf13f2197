#include "services/gateway/api/tools/tool_call_parser.h"

#include "services/gateway/api/tools/hermes_calls.h"
#include "services/gateway/api/tools/llama3_calls.h"
#include "services/gateway/api/tools/mistral_calls.h"

namespace tandem::gateway {

std::unique_ptr<ToolCallParser> MakeToolCallParser(std::string_view format,
                                                   const ToolNames* names) {
  if (format == "hermes") return std::make_unique<HermesCalls>(names);
  if (format == "llama3_json") return std::make_unique<Llama3Calls>(names);
  if (format == "mistral") return std::make_unique<MistralCalls>(names);
  return nullptr;
}

bool WantsShortCallIds(std::string_view format) { return format == "mistral"; }

}  // namespace tandem::gateway
