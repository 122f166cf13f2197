// How a model writes the calls of tools, as its chat template shows it.
#ifndef TANDEM_COMMON_CHAT_TOOL_CALL_FORMAT_H_
#define TANDEM_COMMON_CHAT_TOOL_CALL_FORMAT_H_

#include <string_view>

namespace tandem {

// Names of formats, as clients see them.
inline constexpr std::string_view kHermesCalls = "hermes";
inline constexpr std::string_view kLlama3Calls = "llama3_json";
inline constexpr std::string_view kMistralCalls = "mistral";

// Returns the format, or an empty text for a template that shows none of these:
// - hermes (Hermes 2 Pro, Qwen 2.5, Qwen 3): <tool_call>{"name": …, "arguments": {…}}</tool_call>
// - llama3_json (Llama 3.1 and later): {"name": …, "parameters": {…}} and nothing else
// - mistral: [TOOL_CALLS][{"name": …, "arguments": {…}}], or [TOOL_CALLS]NAME[ARGS]{…}
// Families that write other things between the same tags (Qwen 3 Coder, GLM 4.5) have none.
std::string_view DetectToolCallFormat(std::string_view source);

}  // namespace tandem

#endif  // TANDEM_COMMON_CHAT_TOOL_CALL_FORMAT_H_
