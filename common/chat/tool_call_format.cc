#include "common/chat/tool_call_format.h"

namespace tandem {
namespace {

bool Has(std::string_view source, std::string_view part) {
  return source.find(part) != std::string_view::npos;
}

}  // namespace

std::string_view DetectToolCallFormat(std::string_view source) {
  if (Has(source, "[TOOL_CALLS]")) return kMistralCalls;
  if (Has(source, "<tool_call>")) {
    const bool is_other = Has(source, "<function=") || Has(source, "<arg_key>");
    return is_other ? std::string_view() : kHermesCalls;
  }
  const bool is_llama = Has(source, "<|start_header_id|>") && Has(source, "\"parameters\"");
  return is_llama ? kLlama3Calls : std::string_view();
}

}  // namespace tandem
