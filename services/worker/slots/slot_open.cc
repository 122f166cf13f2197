#include "services/worker/slots/slot_open.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/status.h"

namespace tandem {
namespace {

constexpr int32_t kMaxLogprobs = 20;

absl::Status CheckRange(const char* field, double value, double low, double high, bool low_open) {
  const bool inside =
      std::isfinite(value) && (low_open ? value > low : value >= low) && value <= high;
  if (inside) return absl::OkStatus();
  return InvalidArgument("open.sampling." + std::string(field) + ": got " + std::to_string(value) +
                         ", want " + (low_open ? "(" : "[") + std::to_string(low) + ", " +
                         std::to_string(high) + "]");
}

absl::Status CheckTokenId(const char* field, int32_t id, size_t vocabulary_size) {
  if (id >= 0 && static_cast<size_t>(id) < vocabulary_size) return absl::OkStatus();
  return InvalidArgument("open.sampling." + std::string(field) + ": token id " +
                         std::to_string(id) + " is not in [0, " + std::to_string(vocabulary_size) +
                         ")");
}

}  // namespace

absl::StatusOr<SamplingParams> FromSlotOpen(const v1::SlotOpen& open, size_t vocabulary_size) {
  const v1::SamplingParams& sampling = open.sampling();
  constexpr double kLargest = 3.4e38;
  SamplingParams params;
  if (sampling.has_temperature()) params.temperature = sampling.temperature();
  TANDEM_RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0, kLargest, false));
  if (sampling.has_top_p()) params.top_p = sampling.top_p();
  TANDEM_RETURN_IF_ERROR(CheckRange("top_p", params.top_p, 0, 1, true));
  params.top_k = sampling.top_k();
  if (sampling.has_min_p()) params.min_p = sampling.min_p();
  TANDEM_RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1, false));
  if (sampling.has_repetition_penalty()) params.repetition_penalty = sampling.repetition_penalty();
  TANDEM_RETURN_IF_ERROR(
      CheckRange("repetition_penalty", params.repetition_penalty, 0, kLargest, true));
  params.presence_penalty = sampling.presence_penalty();
  TANDEM_RETURN_IF_ERROR(
      CheckRange("presence_penalty", params.presence_penalty, -kLargest, kLargest, false));
  params.frequency_penalty = sampling.frequency_penalty();
  TANDEM_RETURN_IF_ERROR(
      CheckRange("frequency_penalty", params.frequency_penalty, -kLargest, kLargest, false));
  for (const auto& [id, bias] : sampling.logit_bias()) {
    TANDEM_RETURN_IF_ERROR(CheckTokenId("logit_bias", id, vocabulary_size));
    TANDEM_RETURN_IF_ERROR(CheckRange("logit_bias", bias, -kLargest, kLargest, false));
    params.logit_bias.emplace_back(id, bias);
  }
  // A protobuf map has no order of its own.
  std::sort(params.logit_bias.begin(), params.logit_bias.end());
  params.seed = sampling.seed();
  params.min_tokens = sampling.min_tokens();
  if (params.min_tokens < 0) {
    return InvalidArgument("open.sampling.min_tokens: got " + std::to_string(params.min_tokens) +
                           ", want 0 or more");
  }
  for (int32_t id : sampling.stop_token_ids()) {
    TANDEM_RETURN_IF_ERROR(CheckTokenId("stop_token_ids", id, vocabulary_size));
    params.held_back_token_ids.push_back(id);
  }
  if (sampling.has_logprobs()) {
    params.num_logprobs = sampling.logprobs();
    TANDEM_RETURN_IF_ERROR(CheckRange("logprobs", params.num_logprobs, 0, kMaxLogprobs, false));
  }
  if (open.has_prompt_logprobs()) {
    params.num_prompt_logprobs = open.prompt_logprobs();
    if (open.prompt_logprobs() < 0 || open.prompt_logprobs() > kMaxLogprobs) {
      return InvalidArgument("open.prompt_logprobs: got " + std::to_string(open.prompt_logprobs()) +
                             ", want 0 … " + std::to_string(kMaxLogprobs));
    }
  }
  if (open.num_successors() > static_cast<uint32_t>(kMaxLogprobs)) {
    return InvalidArgument("open.num_successors: got " + std::to_string(open.num_successors()) +
                           ", want 0 … " + std::to_string(kMaxLogprobs));
  }
  params.num_successors = static_cast<int32_t>(open.num_successors());
  params.reproducible = open.reproducible();
  params.lenience = open.lenience();
  TANDEM_RETURN_IF_ERROR(CheckRange("lenience", params.lenience, 0, 1, true));
  params.audit = open.audit();
  if (params.audit && params.lenience < 1.0f) {
    return InvalidArgument("open.audit: set with lenience " + std::to_string(params.lenience) +
                           ", want 1: the audit is of lossless requests");
  }
  return params;
}

}  // namespace tandem
