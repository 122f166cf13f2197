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

GenerationRequest GenerationRequest::ForChoice(uint32_t other) const {
  GenerationRequest request = *this;
  request.choice = other;
  v1::SamplingParams* const sampling = request.open.mutable_sampling();
  sampling->set_seed(sampling->seed() + (other - choice));  // it may wrap around
  if (other > 0) request.open.clear_prompt_logprobs();      // they come once for a call
  return request;
}

v1::SlotOpen GenerationRequest::OpenForDrafter() const {
  v1::SlotOpen drafter = open;
  drafter.clear_prompt_logprobs();
  v1::SamplingParams* const sampling = drafter.mutable_sampling();
  if (draft_sampling.has_temperature()) sampling->set_temperature(draft_sampling.temperature());
  if (draft_sampling.has_top_k()) sampling->set_top_k(draft_sampling.top_k());
  if (draft_sampling.has_top_p()) sampling->set_top_p(draft_sampling.top_p());
  return drafter;
}

}  // namespace tandem
