// Checks every field of what a client sends, and fills in the defaults.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_REQUEST_VALIDATOR_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_REQUEST_VALIDATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/protocol.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/request/generation_request.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// What the operator allows. Each has a flag of tandem-router.
struct RequestLimits {
  size_t max_prompt_bytes = 2 << 20;
  size_t max_request_id_bytes = 128;
  size_t max_stop_strings = 16;
  size_t max_stop_string_bytes = 256;
  size_t max_stop_token_ids = 256;
  size_t max_logit_bias = 1024;
  int32_t max_logprobs = 20;
  uint32_t max_draft_length = kMaxDraftLength;
  int32_t default_max_tokens = 256;
};

// What is served, as the attached workers told.
struct ServedModel {
  std::string model;
  std::string drafter;  // empty: none attached
  uint32_t vocabulary_size = 0;
  uint32_t max_context_tokens = 0;        // prompt and output together
  bool context_limited_by_pages = false;  // the KV cache holds no more of it
  std::vector<int32_t> end_of_text_ids;
};

// Stateless; `random` gives seeds and request ids that nobody asked for.
class RequestValidator {
 public:
  // `tokenizer` must outlive it.
  RequestValidator(const RequestLimits& limits, const Tokenizer* tokenizer,
                   std::function<uint64_t()> random);

  // Errors name the field, what was given and what is allowed: INVALID_ARGUMENT, NOT_FOUND for
  // another model, or RESOURCE_EXHAUSTED for a prompt that the KV cache can never hold. Of a client's
  // string they repeat at most kMaxQuotedBytes.
  //
  // `reproducible` is on when asked for, or when a seed was given and nothing was said; an explicit
  // lenience under 1 turns that default off (asking for both is an error).
  absl::StatusOr<GenerationRequest> Validate(const v1::GenerateRequest& request,
                                             const ServedModel& served) const;

  absl::Status ValidateTokenize(const v1::TokenizeRequest& request) const;
  absl::Status ValidateDetokenize(const v1::DetokenizeRequest& request) const;

  const RequestLimits& limits() const { return limits_; }

 private:
  absl::Status ResolvePrompt(const v1::GenerateRequest& request, const ServedModel& served,
                             GenerationRequest* resolved) const;
  absl::Status ResolveSampling(const v1::SamplingParams& given, const ServedModel& served,
                               GenerationRequest* resolved) const;
  absl::Status ResolveStops(const v1::SamplingParams& given, const ServedModel& served,
                            GenerationRequest* resolved) const;
  absl::Status ResolveSpeculation(const v1::GenerateRequest& request, const ServedModel& served,
                                  GenerationRequest* resolved) const;

  RequestLimits limits_;
  const Tokenizer* tokenizer_;
  std::function<uint64_t()> random_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_REQUEST_VALIDATOR_H_
