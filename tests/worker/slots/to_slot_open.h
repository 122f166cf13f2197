// Sampling parameters on their way from a router to a worker.
#ifndef TANDEM_TESTS_WORKER_SLOTS_TO_SLOT_OPEN_H_
#define TANDEM_TESTS_WORKER_SLOTS_TO_SLOT_OPEN_H_

#include <cstdint>

#include "kernels/sampling/transform/sampling_params.h"
#include "tandem/v1/worker.pb.h"

namespace tandem::testing {

// Returns a message in which every field of SlotOpen.sampling that a worker reads is set.
inline v1::SlotOpen ToSlotOpen(const SamplingParams& params, uint32_t prompt_length) {
  v1::SlotOpen open;
  v1::SamplingParams& sampling = *open.mutable_sampling();
  sampling.set_temperature(params.temperature);
  sampling.set_top_p(params.top_p);
  sampling.set_top_k(params.top_k);
  sampling.set_min_p(params.min_p);
  sampling.set_repetition_penalty(params.repetition_penalty);
  sampling.set_presence_penalty(params.presence_penalty);
  sampling.set_frequency_penalty(params.frequency_penalty);
  for (const auto& [id, bias] : params.logit_bias) (*sampling.mutable_logit_bias())[id] = bias;
  sampling.set_seed(params.seed);
  sampling.set_min_tokens(params.min_tokens);
  for (int32_t id : params.held_back_token_ids) sampling.add_stop_token_ids(id);
  if (params.num_logprobs >= 0) sampling.set_logprobs(params.num_logprobs);
  if (params.num_prompt_logprobs >= 0) open.set_prompt_logprobs(params.num_prompt_logprobs);
  open.set_reproducible(params.reproducible);
  open.set_lenience(params.lenience);
  open.set_prompt_length(prompt_length);
  open.set_audit(params.audit);
  open.set_num_successors(static_cast<uint32_t>(params.num_successors));
  return open;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_WORKER_SLOTS_TO_SLOT_OPEN_H_
