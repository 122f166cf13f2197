// Draws one token from each row on a GPU. Each thread block draws from one row.
#include <cmath>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/draw_row.cuh"
#include "kernels/sampling/random/philox.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 512;

// The score that a token with noise u must beat to win. It is kept as bits: scores are >= 0, so
// their order is that of their bits.
__device__ uint64_t ScoreBits(double u, float log_prob) {
  return static_cast<uint64_t>(
      __double_as_longlong(__ddiv_rn(-log1p(-u), exp(static_cast<double>(log_prob)))));
}

// Returns argmin_x(E(x) / p(x)), with the lowest id among equals, and -1 if every p is 0. Like
// CoupledArgmin, a thread evaluates only tokens that may beat its best token: E(x) >= u(x).
__device__ int32_t CoupledArgminOfRow(const float* log_probs, size_t size, const DrawKey& key,
                                      uint64_t* scratch) {
  constexpr uint64_t kNone = ~uint64_t{0};
  double best_score = INFINITY;  // the score of p = 0, which does not win
  auto best = static_cast<uint64_t>(__double_as_longlong(best_score));
  uint64_t best_id = kNone;
  for (size_t pair = threadIdx.x; 2 * pair < size; pair += kThreads) {
    const size_t ids[2] = {2 * pair, 2 * pair + 1};
    const float values[2] = {log_probs[ids[0]], ids[1] < size ? log_probs[ids[1]] : -INFINITY};
    if (values[0] == -INFINITY && values[1] == -INFINITY) continue;
    const uint4 words = CoupledWords(key, static_cast<uint32_t>(pair));
    const double uniforms[2] = {UniformOfWords(words.x, words.y), UniformOfWords(words.z, words.w)};
    for (int half = 0; half < 2; ++half) {
      if (values[half] == -INFINITY) continue;
      // expf is within two units in the last place, and may be 0 for p > 0.
      const double bound = static_cast<double>(expf(values[half])) * 1.00001 + 1e-37;
      if (uniforms[half] >= best_score * bound) continue;
      const uint64_t score = ScoreBits(uniforms[half], values[half]);
      if (score >= best) continue;
      best = score;
      best_id = ids[half];
      best_score = __longlong_as_double(static_cast<long long>(best));
    }
  }
  const uint64_t smallest = BlockMin(best, scratch);
  const uint64_t id = BlockMin(best == smallest ? best_id : kNone, scratch);
  return id == kNone ? -1 : static_cast<int32_t>(id);
}

struct Shared {
  uint64_t keys[kWarpSize];
  double sums[kWarpSize];
};

__global__ void __launch_bounds__(kThreads) DrawRowToken(DeviceDrawArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const RowToDraw draw = args.draws[blockIdx.x];
  const float* const values = args.values + blockIdx.x * args.stride;
  const size_t size = args.vocabulary_size;
  int32_t token_id = -1;
  if (args.not_finite[blockIdx.x] == 0) {
    switch (draw.how) {
      case RowDraw::kNone:
        break;
      case RowDraw::kGreedy:
        token_id = IdOfKey(SmallestKey(values, size, 0, shared->keys));
        break;
      case RowDraw::kCoupled:
        token_id = CoupledArgminOfRow(values, size, draw.key, shared->keys);
        if (token_id < 0) token_id = IdOfKey(SmallestKey(values, size, 0, shared->keys));
        break;
      case RowDraw::kPlain:
        token_id = DrawRow(values, size, DeviceUniform(draw.key, DrawPurpose::kPropose),
                           shared->sums, shared->keys);
        break;
      case RowDraw::kTarget:
        token_id = DrawRow(values, size, DeviceUniform(TargetKey(draw.key), DrawPurpose::kBonus),
                           shared->sums, shared->keys);
        break;
    }
  }
  if (threadIdx.x == 0) args.token_ids[blockIdx.x] = token_id;
}

__global__ void __launch_bounds__(kThreads) KeepDraft(DeviceDraftArgs args) {
  const size_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= args.rows) return;
  const int32_t drawn = args.drawn[row];
  const int32_t fed = drawn < 0 ? 0 : drawn;
  args.fed[row] = fed;
  args.drafts[row * args.stride + args.pass] = fed;
  args.record[row * args.stride + args.pass] = drawn;
}

}  // namespace

absl::Status DrawTokens(const DeviceDrawArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("DrawTokens", DrawRowToken,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

absl::Status KeepDrafts(const DeviceDraftArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  const size_t blocks = (args.rows + kThreads - 1) / kThreads;
  return Launch("KeepDrafts", KeepDraft, {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0},
                stream, args);
}

}  // namespace tandem
