// Reads the values of the fields that only chats have.
#ifndef TANDEM_SERVICES_GATEWAY_API_FIELDS_CHAT_READERS_H_
#define TANDEM_SERVICES_GATEWAY_API_FIELDS_CHAT_READERS_H_

#include <string>

#include "absl/status/status.h"
#include "services/gateway/api/fields/json_body.h"
#include "services/gateway/api/fields/request_draft.h"

namespace tandem::gateway {

absl::Status ReadMessages(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadTools(const std::string& name, const Json& value, RequestDraft* draft);
// "auto" or "none".
absl::Status ReadToolChoice(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadParallelCalls(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadTemplateKwargs(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadReasoningEffort(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadGenerationPrompt(const std::string& name, const Json& value, RequestDraft* draft);
// Whether log-probabilities are reported, in the shape of chats.
absl::Status ReadChatLogprobs(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadTopLogprobs(const std::string& name, const Json& value, RequestDraft* draft);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_FIELDS_CHAT_READERS_H_
