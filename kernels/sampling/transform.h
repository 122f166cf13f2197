// From raw logits to the distribution that a token is drawn from. One order, in draft and target
// alike:
//   repetition, presence, frequency penalty; logit bias; min_tokens mask; temperature; top-k;
//   top-p; min-p.
// Greedy decoding takes the argmax after the first four.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"

namespace tandem {

// False when a raw logit is NaN or infinite.
bool AllFinite(std::span<const float> logits);

// The transforms that depend on the context. `counts` holds every token before the one to be drawn,
// the block's earlier draft tokens included; num_output_tokens is how many of them are output.
//   logits, adjusted  [V]  f32; may be the same memory. Masked entries become -infinity.
// A min_tokens mask that would leave no token at all is not applied.
// Repetition penalty as in Keskar et al. 2019 (CTRL): divide a positive logit by it, multiply a
// negative one.
void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenCounts& counts, int32_t num_output_tokens, std::span<float> adjusted);

// False when AdjustLogits would only copy.
bool AdjustsLogits(const SamplingParams& params, int32_t num_output_tokens);
// The tokens that its min_tokens mask takes; empty where it is not applied.
std::span<const int32_t> HeldBack(const SamplingParams& params, int32_t num_output_tokens,
                                  size_t vocabulary_size);
// True when it looks at `counts`.
bool HasPenalties(const SamplingParams& params);

// Temperature, top-k, top-p, min-p, then normalises. PRECOND: !params.greedy().
//   adjusted, log_probs  [V]  f32; may be the same memory. Entries that were cut are -infinity.
// Ties at the cut of top-k (equal adjusted logits) and top-p (equal after temperature, in f32):
// lower token ids stay. Sums in double.
void LogProbs(std::span<const float> adjusted, const SamplingParams& params,
              std::span<float> log_probs);

// Index of the largest entry; the lowest id among equals. PRECOND: not empty, no NaN.
int32_t Argmax(std::span<const float> values);

// ---------------------------------------------------------------- on a GPU

// What AdjustLogits looks at of one row: its request's parameters and its context.
//   counts               [V]  in device memory: of each token before the row's block, twice how often
//                             it is in the output, + 1 if it is in the prompt (CountTokens below).
//                             Null where the request has no penalties
//   earlier              [num_earlier]  draft tokens of the block before this row: output too
//   bias_token_ids, biases  [num_biases]  each id once
//   held_back_token_ids  [num_held_back]  masked; 0 once min_tokens are reached, or where the mask
//                             would leave no token
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

// AdjustLogits and AllFinite of many rows (adjust_logits_cuda.cu). All arrays are in device memory.
//   adjustments  [rows]
//   logits       [rows, vocabulary_size]  f32, rows `stride` floats apart
//   adjusted     [rows, vocabulary_size]  f32, `stride` too; not the same memory
//   not_finite   [rows]  out: 1 where a raw logit is NaN or infinite, else 0
// The bits are those of the CPU's.
struct DeviceAdjustArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const RowAdjustment* adjustments = nullptr;
  const float* logits = nullptr;
  float* adjusted = nullptr;
  int32_t* not_finite = nullptr;
};

// Enqueued on `stream`, nothing waits. INTERNAL: the launch was refused. So with all that follow.
absl::Status AdjustLogits(const DeviceAdjustArgs& args, CudaStream stream);

// counts[token_ids[i]] is told of one more. Ids may repeat.
//   counts     [V]  as in RowAdjustment
//   token_ids  [count]  in [0, V)
struct DeviceCountArgs {
  size_t count = 0;
  const int32_t* token_ids = nullptr;
  bool is_output = false;
  uint32_t* counts = nullptr;
};

absl::Status CountTokens(const DeviceCountArgs& args, CudaStream stream);

// What LogProbs looks at of one row's parameters.
struct RowSampling {
  float temperature = 1;  // 0 is greedy: the row stays as it is
  float top_p = 1;
  int32_t top_k = 0;
  float min_p = 0;
};

// LogProbs of many rows (log_probs_cuda.cu). All arrays are in device memory.
//   params     [rows]
//   adjusted   [rows, vocabulary_size]  f32, rows `stride` floats apart; finite, or -infinity where
//              masked, one at least finite (what a row that is not so gives means nothing)
//   log_probs  the same; may be the same memory
// The cuts are those of LogProbs, ties and all; sums for top-p are of 2^-44ths, so that they do not
// depend on the order in which threads add. A row's bits do not depend on the other rows.
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

// token_ids[row] = Argmax of the row (argmax_cuda.cu); -1 where it holds NaN or infinity. As above.
//   logits     [rows, vocabulary_size]  f32, rows `stride` floats apart
//   token_ids  [rows]                   i32 out
struct DeviceArgmaxArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const float* logits = nullptr;
  int32_t* token_ids = nullptr;
};

absl::Status Argmax(const DeviceArgmaxArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_H_
