// Makes requests of the router's API from the body of POST /v1/completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_COMPLETION_REQUEST_H_
#define TANDEM_SERVICES_GATEWAY_API_COMPLETION_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "services/gateway/api/request_draft.h"

namespace tandem::gateway {

// Default of max_tokens, as OpenAI and vLLM have it for this endpoint.
inline constexpr int kDefaultMaxTokens = 16;

class CompletionRequest {
 public:
  // INVALID_ARGUMENT: the body is no JSON, or a field has a value that the gateway itself refuses.
  // Such a message begins with the name of the field. The router checks the rest.
  static absl::StatusOr<CompletionRequest> Parse(std::string_view body);

  // One choice for each prompt.
  size_t num_choices() const { return draft_.prompts.size(); }
  const AnswerOptions& answer() const { return draft_.answer; }
  const std::string& model() const { return draft_.shared.model(); }
  const Prompt& prompt(size_t choice) const { return draft_.prompts[choice]; }
  bool skips_special_tokens() const {
    return !draft_.shared.sampling_params().has_skip_special_tokens() ||
           draft_.shared.sampling_params().skip_special_tokens();
  }

  // Returns the router's request for a choice. The prompt moves into it, so this is called once for
  // each choice.
  v1::GenerateRequest Take(size_t choice, std::string request_id);

 private:
  explicit CompletionRequest(RequestDraft draft) : draft_(std::move(draft)) {}

  RequestDraft draft_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_COMPLETION_REQUEST_H_
