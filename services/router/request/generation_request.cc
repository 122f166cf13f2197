#include "services/router/request/generation_request.h"

#include "absl/strings/str_cat.h"

namespace tandem {

void GenerationRequest::LimitMaxTokens(uint64_t room, const std::string& of) {
  if (static_cast<uint64_t>(max_tokens) <= room) return;
  if (max_tokens_given) {
    warnings.push_back(absl::StrCat("max_tokens: got ", max_tokens, ", cut to ", room, ": ", of,
                                    " also holds the prompt's ", prompt_token_ids.size(),
                                    " tokens"));
  }
  max_tokens = static_cast<int32_t>(room);
}

}  // namespace tandem
