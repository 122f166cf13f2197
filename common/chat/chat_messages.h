// Checks the messages and tools of a chat request, and gives them the shape that chat templates
// read.
#ifndef TANDEM_COMMON_CHAT_CHAT_MESSAGES_H_
#define TANDEM_COMMON_CHAT_CHAT_MESSAGES_H_

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

// What a template does with the arguments of a tool call. Clients of OpenAI's API send a text with
// an object in JSON.
enum class ToolArguments {
  kObjects,  // Texts with an object become that object, as most templates want.
  kTexts,    // Everything stays as it is.
};

// Returns a copy in which
// - a content that is a list of text parts is one text, with newlines between the parts,
// - keys whose value is null are left out, as in transformers,
// - a message with reasoning has it under each of the names that templates use, as in transformers.
// Fails with INVALID_ARGUMENT and the place (messages[2].content[0].type) unless `messages` is a
// list of at least one object with a role, whose content is a text, text parts, or not there.
absl::StatusOr<nlohmann::ordered_json> NormalizeMessages(const nlohmann::ordered_json& messages,
                                                         ToolArguments arguments);

// Whether the two shapes of arguments differ for these messages.
bool HasTextArguments(const nlohmann::ordered_json& messages);

// Returns null for no tools, which templates test for. Fails with INVALID_ARGUMENT unless `tools`
// is null or a list of objects.
absl::StatusOr<nlohmann::ordered_json> NormalizeTools(const nlohmann::ordered_json& tools);

}  // namespace tandem

#endif  // TANDEM_COMMON_CHAT_CHAT_MESSAGES_H_
