// The transforms of the context on a GPU: penalties, biases, the mask of min_tokens, and the test
// whether a row is finite. Several thread blocks share a row, and each has a stretch of the
// vocabulary.
#include <cfloat>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr size_t kStretch = 4096;  // entries of a thread block

// The same as in transform.cc.
__device__ float ToFiniteFloat(double value) {
  constexpr double kLargest = FLT_MAX;
  return static_cast<float>(fmin(fmax(value, -kLargest), kLargest));
}

__device__ float Penalize(float raw, const RowAdjustment& row, bool in_prompt, uint32_t in_output) {
  if (!in_prompt && in_output == 0) return raw;
  const double repetition = row.repetition_penalty;
  double logit = raw;
  logit = logit > 0 ? __ddiv_rn(logit, repetition) : __dmul_rn(logit, repetition);
  if (in_output > 0) {
    logit = __dadd_rn(logit, -static_cast<double>(row.presence_penalty));
    logit = __dadd_rn(logit, -__dmul_rn(static_cast<double>(row.frequency_penalty),
                                        static_cast<double>(in_output)));
  }
  return ToFiniteFloat(logit);
}

__global__ void __launch_bounds__(kThreads) AdjustStretch(DeviceAdjustArgs args) {
  const RowAdjustment row = args.adjustments[blockIdx.y];
  const float* const logits = args.logits + blockIdx.y * args.stride;
  float* const adjusted = args.adjusted + blockIdx.y * args.stride;
  const size_t begin = blockIdx.x * kStretch;
  const size_t end =
      begin + kStretch < args.vocabulary_size ? begin + kStretch : args.vocabulary_size;

  for (size_t i = begin + threadIdx.x; i < end; i += kThreads) {
    float logit = logits[i];
    if (!IsFiniteFloat(logit)) args.not_finite[blockIdx.y] = 1;  // every writer writes 1
    if (row.counts != nullptr) {
      uint32_t in_output = row.counts[i] / 2;
      for (int32_t e = 0; e < row.num_earlier; ++e) {
        in_output += row.earlier[e] == static_cast<int32_t>(i) ? 1 : 0;
      }
      logit = Penalize(logit, row, row.counts[i] % 2 != 0, in_output);
    }
    adjusted[i] = logit;
  }
  // Lists may name any token. A thread block handles the tokens of its stretch after all its
  // entries were written.
  const auto is_here = [&](int32_t token_id) {
    return static_cast<size_t>(token_id) >= begin && static_cast<size_t>(token_id) < end;
  };
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < row.num_biases; i += kThreads) {
    const int32_t token_id = row.bias_token_ids[i];
    if (!is_here(token_id)) continue;
    adjusted[token_id] = ToFiniteFloat(
        __dadd_rn(static_cast<double>(adjusted[token_id]), static_cast<double>(row.biases[i])));
  }
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < row.num_held_back; i += kThreads) {
    if (is_here(row.held_back_token_ids[i])) adjusted[row.held_back_token_ids[i]] = -INFINITY;
  }
}

__global__ void __launch_bounds__(kThreads) CountEach(DeviceCountArgs args) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.count) return;
  uint32_t* const count = &args.counts[args.token_ids[i]];
  if (args.is_output) {
    atomicAdd(count, 2u);
  } else {
    atomicOr(count, 1u);
  }
}

}  // namespace

absl::Status AdjustLogits(const DeviceAdjustArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  if (const absl::Status cleared =
          CudaStatus(cudaMemsetAsync(args.not_finite, 0, args.rows * sizeof(int32_t), stream),
                     "cudaMemsetAsync");
      !cleared.ok()) {
    return cleared;
  }
  const size_t stretches = (args.vocabulary_size + kStretch - 1) / kStretch;
  return Launch(
      "AdjustLogits", AdjustStretch,
      {dim3(static_cast<unsigned>(stretches), static_cast<unsigned>(args.rows)), dim3(kThreads)},
      stream, args);
}

absl::Status CountTokens(const DeviceCountArgs& args, CudaStream stream) {
  if (args.count == 0) return absl::OkStatus();
  return Launch(
      "CountTokens", CountEach,
      {dim3(static_cast<unsigned>((args.count + kThreads - 1) / kThreads)), dim3(kThreads)}, stream,
      args);
}

}  // namespace tandem
