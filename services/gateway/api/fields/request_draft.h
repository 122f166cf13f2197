// What the fields of a request's body become while they are read.
#ifndef TANDEM_SERVICES_GATEWAY_API_FIELDS_REQUEST_DRAFT_H_
#define TANDEM_SERVICES_GATEWAY_API_FIELDS_REQUEST_DRAFT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "services/gateway/api/tools/tool_call_parser.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// A text, token ids that are used unchanged, or a chat that the router renders.
using Prompt = std::variant<std::string, v1::TokenIds, v1::Chat>;

// How the answer is written. The router knows nothing of this.
struct AnswerOptions {
  bool is_chat = false;
  size_t num_choices = 1;  // for each prompt
  ToolNames tool_names;    // calls of these tools are found in the output
  bool one_call = false;   // only the first call of an answer is kept
  bool stream = false;
  bool has_stream_options = false;
  bool include_usage = false;
  bool echo = false;
  std::vector<int32_t> stop_token_ids;  // those that the client gave
  bool logprobs = false;
  std::string user;  // the tenant of an authenticated client; empty: none
};

struct RequestDraft {
  std::string_view body;       // the JSON that the fields are read from
  v1::GenerateRequest shared;  // what all prompts of the request share
  std::vector<Prompt> prompts;
  AnswerOptions answer;
  std::optional<int32_t> max_tokens;
  std::optional<int32_t> max_completion_tokens;

  // What chats have.
  v1::Chat chat;
  bool uses_tools = true;  // tool_choice is not "none"
  std::optional<int32_t> top_logprobs;
  std::optional<std::string> reasoning_effort;
  bool has_effort_variable = false;  // chat_template_kwargs have it
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_FIELDS_REQUEST_DRAFT_H_
