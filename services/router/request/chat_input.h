// Makes the input of a chat template from a client's chat.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_CHAT_INPUT_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_CHAT_INPUT_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "common/chat/chat_template.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// Limits of each JSON in a chat: tools, variables, and the arguments of a call.
inline constexpr size_t kMaxChatJsonDepth = 64;     // levels of arrays and objects
inline constexpr int kMaxChatJsonMembers = 1'000;   // members of an object or a list
inline constexpr int kMaxChatJsonValues = 100'000;  // members of all of them together

// Fails with INVALID_ARGUMENT for a message without a role, and for JSON that is not what the field
// wants. The messages begin with the name of the field ("chat.messages[2].role").
absl::StatusOr<ChatInput> ToChatInput(const v1::Chat& chat);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_CHAT_INPUT_H_
