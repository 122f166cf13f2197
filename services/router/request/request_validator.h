// Checks every field of a client's request, and fills in the defaults.
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
#include "services/router/request/prompt_encoder.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// The operator's limits.
struct RequestLimits {
  size_t max_prompt_bytes = 2 << 20;
  size_t max_request_id_bytes = 128;
  size_t max_stop_strings = 16;
  size_t max_stop_string_bytes = 256;
  size_t max_stop_token_ids = 256;
  size_t max_logit_bias = 1024;
  int32_t max_logprobs = 20;
  int32_t max_choices = 16;
  uint32_t max_draft_length = kMaxDraftLength;
  uint32_t max_tree_nodes = 16;
  int32_t default_max_tokens = 256;
  DrafterSet drafters = DefaultDrafters();  // those of a request that names none
  bool has_corpus = false;                  // whether requests can use retrieval
};

// The model that is served, as the attached workers describe it.
struct ServedModel {
  std::string model;
  std::vector<std::string> draft_models;   // names of those that fit, by number
  std::vector<std::string> self_drafters;  // names of the drafters that live in the verifiers
  uint32_t vocabulary_size = 0;
  uint32_t max_context_tokens = 0;        // prompt and output together
  bool context_limited_by_pages = false;  // the KV cache limits the context
  std::vector<int32_t> end_of_text_ids;
};

// Stateless. `random` gives seeds and request ids to requests that state none.
class RequestValidator {
 public:
  RequestValidator(const RequestLimits& limits, PromptEncoder encoder,
                   std::function<uint64_t()> random);
  // The same without a chat template. `tokenizer` must outlive the object.
  RequestValidator(const RequestLimits& limits, const Tokenizer* tokenizer,
                   std::function<uint64_t()> random);

  // Errors name the field, the given value and the allowed values: INVALID_ARGUMENT, NOT_FOUND for
  // another model, or RESOURCE_EXHAUSTED for a prompt that the KV cache can never hold. They repeat
  // at most kMaxQuotedBytes of a client's string.
  //
  // `reproducible` is on if the request asks for it. If the request does not state it,
  // `reproducible` is on if a seed was given and lenience is not below 1. To ask for both
  // `reproducible` and lenience below 1 is an error.
  absl::StatusOr<GenerationRequest> Validate(const v1::GenerateRequest& request,
                                             const ServedModel& served) const;

  absl::Status ValidateDetokenize(const v1::DetokenizeRequest& request) const;

  const RequestLimits& limits() const { return limits_; }
  const PromptEncoder& encoder() const { return encoder_; }

 private:
  absl::Status ResolvePrompt(const v1::GenerateRequest& request, const ServedModel& served,
                             GenerationRequest* resolved) const;
  absl::Status ResolveText(const v1::GenerateRequest& request, GenerationRequest* resolved) const;
  absl::Status ResolveSampling(const v1::SamplingParams& given, const ServedModel& served,
                               GenerationRequest* resolved) const;
  // The log-probabilities of the prompt's tokens, without which max_tokens may not be 0.
  absl::Status ResolveScores(const v1::SamplingParams& given, GenerationRequest* resolved) const;
  absl::Status ResolveChoices(const v1::SamplingParams& given, GenerationRequest* resolved) const;
  absl::Status ResolveStops(const v1::SamplingParams& given, const ServedModel& served,
                            GenerationRequest* resolved) const;
  absl::Status ResolveSpeculation(const v1::GenerateRequest& request, const ServedModel& served,
                                  GenerationRequest* resolved) const;
  absl::Status ResolveDraftSampling(const v1::SpeculationParams& given,
                                    GenerationRequest* resolved) const;
  absl::Status ResolveDrafter(const v1::SpeculationParams& given, const ServedModel& served,
                              GenerationRequest* resolved) const;
  absl::Status ResolvePrediction(const v1::Prediction& given, const ServedModel& served,
                                 GenerationRequest* resolved) const;

  RequestLimits limits_;
  PromptEncoder encoder_;
  std::function<uint64_t()> random_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_REQUEST_VALIDATOR_H_
