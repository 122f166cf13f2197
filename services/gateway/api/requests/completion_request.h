// Makes requests of the router's API from the bodies of POST /v1/completions and
// POST /v1/chat/completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_REQUESTS_COMPLETION_REQUEST_H_
#define TANDEM_SERVICES_GATEWAY_API_REQUESTS_COMPLETION_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "services/gateway/api/fields/request_draft.h"

namespace tandem::gateway {

// Default of max_tokens of completions, as OpenAI and vLLM have it. A chat has the room in the
// context.
inline constexpr int kDefaultMaxTokens = 16;
// Largest number of choices of all prompts together.
inline constexpr size_t kMaxChoices = 1024;

class CompletionRequest {
 public:
  // INVALID_ARGUMENT: the body is no JSON, or a field has a value that the gateway itself refuses.
  // Such a message begins with the name of the field. The router checks the rest.
  static absl::StatusOr<CompletionRequest> Parse(std::string_view body);
  // The same for a chat, which is one prompt.
  static absl::StatusOr<CompletionRequest> ParseChat(std::string_view body);

  size_t num_prompts() const { return draft_.prompts.size(); }
  const AnswerOptions& answer() const { return draft_.answer; }
  const std::string& model() const { return draft_.shared.model(); }
  const Prompt& prompt(size_t index) const { return draft_.prompts[index]; }
  bool skips_special_tokens() const {
    return !draft_.shared.sampling_params().has_skip_special_tokens() ||
           draft_.shared.sampling_params().skip_special_tokens();
  }

  // Some models mark calls of tools with special tokens, so the output must show them, unless the
  // client wants otherwise.
  void ShowSpecialTokens() {
    v1::SamplingParams* sampling = draft_.shared.mutable_sampling_params();
    if (!sampling->has_skip_special_tokens()) sampling->set_skip_special_tokens(false);
  }

  // Returns the router's request for a prompt, with all its choices. The prompt moves into it, so
  // this is called once for each prompt.
  v1::GenerateRequest Take(size_t prompt, std::string request_id);

 private:
  explicit CompletionRequest(RequestDraft draft) : draft_(std::move(draft)) {}

  RequestDraft draft_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_REQUESTS_COMPLETION_REQUEST_H_
