// From raw logits to the distribution that a token is drawn from. Draft and target apply the
// transforms in the same order:
//   repetition, presence, frequency penalty; logit bias; min_tokens mask; temperature; top-k;
//   top-p; min-p.
// Greedy decoding takes the argmax after the first four.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_TRANSFORM_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_TRANSFORM_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/device/stream.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"

namespace tandem {

// Returns false if a raw logit is NaN or infinite.
bool AllFinite(std::span<const float> logits);

// Applies the transforms that depend on the context. `counts` holds every token before the one that
// will be drawn, including the block's earlier draft tokens. num_output_tokens of them are output.
//   logits, adjusted  [V]  f32; may be the same memory. Masked entries become -infinity.
// A min_tokens mask that would leave no token at all is not applied.
// The repetition penalty is that of Keskar et al. 2019 (CTRL): a positive logit is divided by it,
// and a negative logit is multiplied by it.
void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenCounts& counts, int32_t num_output_tokens, std::span<float> adjusted);

// What AdjustLogits does to one logit: the penalties of a token that occurs in `counts` so often,
// and then the bias of the token. Finite logits stay finite.
float PenalizedLogit(float logit, const SamplingParams& params, const TokenCounts::Count& count);
float BiasedLogit(float logit, float bias);

// Returns false if AdjustLogits would only copy.
bool AdjustsLogits(const SamplingParams& params, int32_t num_output_tokens);
// Returns the tokens that the min_tokens mask of AdjustLogits takes. Empty if no mask is applied.
std::span<const int32_t> HeldBack(const SamplingParams& params, int32_t num_output_tokens,
                                  size_t vocabulary_size);
// Returns true if AdjustLogits looks at `counts`.
bool HasPenalties(const SamplingParams& params);

// Applies temperature, top-k, top-p and min-p, then normalizes. PRECOND: !params.greedy().
//   adjusted, log_probs  [V]  f32; may be the same memory. Entries that were cut are -infinity.
// Among ties at the cut of top-k (equal adjusted logits) and of top-p (equal after temperature, in
// f32), lower token ids stay. Sums are doubles.
void LogProbs(std::span<const float> adjusted, const SamplingParams& params,
              std::span<float> log_probs);

// Index of the largest entry; the lowest id among equals. PRECOND: not empty, no NaN.
int32_t Argmax(std::span<const float> values);

// ---------------------------------------------------------------- on a GPU

// Parameters and context of one row for AdjustLogits.
//   counts               [V]  in device memory: for each token, twice its number in the output
//                             before the row's block, plus 1 if it is in the prompt (CountTokens
//                             below). Null if the request has no penalties
//   earlier              [num_earlier]    the block's draft tokens before this row; they count as
//                                         output
//   bias_token_ids       [num_biases]     each id once
//   biases               [num_biases]
//   held_back_token_ids  [num_held_back]  masked tokens. num_held_back is 0 once min_tokens are
//                                         reached, or if the mask would leave no token
struct RowAdjustment {
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t num_earlier = 0;
  int32_t num_biases = 0;
  int32_t num_held_back = 0;
  const uint32_t* counts = nullptr;
  const int32_t* earlier = nullptr;
  const int32_t* bias_token_ids = nullptr;
  const float* biases = nullptr;
  const int32_t* held_back_token_ids = nullptr;
};

// AdjustLogits and AllFinite for many rows (adjust_logits_cuda.cu). All arrays are in device
// memory.
//   adjustments  [rows]
//   logits       [rows, vocabulary_size]  f32, rows `stride` floats apart
//   adjusted     [rows, vocabulary_size]  f32, rows `stride` floats apart; not the memory of logits
//   not_finite   [rows]  out, 1 if a raw logit of the row is NaN or infinite, else 0
// The bits are those of the CPU.
struct DeviceAdjustArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const RowAdjustment* adjustments = nullptr;
  const float* logits = nullptr;
  float* adjusted = nullptr;
  int32_t* not_finite = nullptr;
};

// The work is enqueued on `stream`; the call does not wait. INTERNAL: the launch was refused. The
// functions below do the same.
absl::Status AdjustLogits(const DeviceAdjustArgs& args, CudaStream stream);

// Counts one more occurrence of each token_ids[i] in `counts`. Ids may repeat.
//   counts     [V]  as in RowAdjustment
//   token_ids  [count]  in [0, V)
struct DeviceCountArgs {
  size_t count = 0;
  const int32_t* token_ids = nullptr;
  bool is_output = false;
  uint32_t* counts = nullptr;
};

absl::Status CountTokens(const DeviceCountArgs& args, CudaStream stream);

// Parameters of one row for LogProbs.
struct RowSampling {
  float temperature = 1;  // 0 is greedy: the row is not changed
  float top_p = 1;
  int32_t top_k = 0;
  float min_p = 0;
};

// LogProbs for many rows (log_probs_cuda.cu). All arrays are in device memory.
//   params     [rows]
//   adjusted   [rows, vocabulary_size]  f32, rows `stride` floats apart; each entry is finite, or
//                                       -infinity if it is masked, and at least one is finite.
//                                       Otherwise the row's results mean nothing
//   log_probs  [rows, vocabulary_size]  f32, rows `stride` floats apart; may be the memory of
//                                       adjusted
// The cuts are those of LogProbs, including ties of adjusted logits. (Where different logits become
// equal after temperature, top-p keeps the larger one here, and the one of the lower id there.)
// Sums for top-p count units of 2^-44 of the largest probability, so that they do not depend on the
// order in which threads add. A row's bits depend on its values and parameters, and neither on the
// other rows nor on its address. A temperature below 2^-70 counts as 2^-70.
// PRECOND: vocabulary_size in [1, 2^19).
struct DeviceLogProbsArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const RowSampling* params = nullptr;
  const float* adjusted = nullptr;
  float* log_probs = nullptr;
};

absl::Status LogProbs(const DeviceLogProbsArgs& args, CudaStream stream);

// Argmax for many rows (argmax_cuda.cu). All arrays are in device memory.
//   logits     [rows, vocabulary_size]  f32, rows `stride` floats apart
//   token_ids  [rows]                   i32 out; -1 if the row holds NaN or infinity
struct DeviceArgmaxArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const float* logits = nullptr;
  int32_t* token_ids = nullptr;
};

absl::Status Argmax(const DeviceArgmaxArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_TRANSFORM_H_
