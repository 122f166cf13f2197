// Draws one token from each row on a GPU. Each thread block draws from one row.
#include <cmath>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/draw_row.cuh"
#include "kernels/sampling/random/philox.cuh"
#include "kernels/sampling/transform/row_scan.cuh"

namespace tandem {
namespace {

constexpr int kThreads = kDrawThreads;

struct Shared {
  uint64_t keys[kWarpSize];
  double sums[kWarpSize];
  float floats[kWarpSize];
  unsigned score_bound;  // complement of the bits of a float that the smallest score is not above
};

// The score that a token with noise u must beat to win. It is kept as bits: scores are >= 0, so
// their order is that of their bits. Out of line, because few tokens need it.
__device__ __noinline__ uint64_t ScoreBits(double u, float log_prob) {
  return static_cast<uint64_t>(
      __double_as_longlong(__ddiv_rn(-log1p(-u), exp(static_cast<double>(log_prob)))));
}
constexpr uint64_t kScoreOfZero = 0x7FF0000000000000;  // infinity, which does not win
__device__ double ScoreOfBits(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}

// More than the rounding of a bound can do. __expf has the largest error: 1.3e-5 where p > 1e-37.
constexpr float kMore = 1.0001f;

// The upper 24 bits of the word are those of u: the result is at most 2^24 * u, and less than one
// below it.
__device__ float UnitsOf(uint32_t upper_word) { return static_cast<float>(upper_word >> 8); }

// Returns a number that the score is not above: E(x) = -log(1 - u) <= u / (1 - u).
__device__ float AboveScore(uint32_t upper_word, float log_prob) {
  const float u = __fmul_rn(UnitsOf(upper_word) + 1, 0x1p-24f);
  const float p = __expf(log_prob);
  return p > 1e-37f ? __fmul_rn(__fdiv_rn(u, __fmul_rn(1 - u, p)), kMore * kMore) : INFINITY;
}

// Finds argmin_x(E(x) / p(x)) among the tokens of a thread. Like CoupledArgmin, it evaluates only
// tokens that may beat a score that some token is known to have: E(x) >= u(x). Threads share the
// smallest of these scores. It decides only which of the losers are evaluated, so the result does
// not depend on when a thread sees it.
class CoupledSearch {
 public:
  __device__ CoupledSearch(const DrawKey& key, Shared* shared) : key_(key), shared_(*shared) {}

  // The tokens 2 * pair and 2 * pair + 1.
  __device__ void Meet(unsigned pair, float first, float second) {
    const float larger = fmaxf(first, second);
    if (larger == -INFINITY) return;
    const uint4 words = CoupledWords(key_, pair);
    const float most = __fmaf_rn(__expf(larger), kMore, 1e-37f);
    if (UnitsOf(min(words.x, words.z)) > __fmul_rn(units_to_beat_, most)) return;
    Evaluate(2 * pair, first, words.x, words.y);
    Evaluate(2 * pair + 1, second, words.z, words.w);
  }

  // Takes note of scores that other threads have found.
  __device__ void Hear() {
    const unsigned bits = ~*static_cast<const volatile unsigned*>(&shared_.score_bound);
    units_to_beat_ = __fmul_rn(__uint_as_float(bits), 0x1p24f * kMore);
  }
  __device__ void Tell(float score_bound) {
    atomicMax(&shared_.score_bound, ~__float_as_uint(score_bound));
  }

  // Returns the token of all threads with the lowest score, and with the lowest id among equals.
  // -1: every p is 0.
  __device__ int32_t Winner() {
    constexpr uint64_t kNone = ~uint64_t{0};
    const uint64_t smallest = BlockMin(best_, shared_.keys);
    const bool has_it = best_ == smallest && best_id_ >= 0;
    const uint64_t id = BlockMin(has_it ? static_cast<uint64_t>(best_id_) : kNone, shared_.keys);
    return id == kNone ? -1 : static_cast<int32_t>(id);
  }

 private:
  __device__ void Evaluate(unsigned id, float log_prob, uint32_t upper, uint32_t lower) {
    if (log_prob == -INFINITY) return;
    const uint64_t score = ScoreBits(UniformOfWords(upper, lower), log_prob);
    if (score >= best_) return;
    best_ = score;
    best_id_ = static_cast<int32_t>(id);
    Tell(__fmul_rn(static_cast<float>(ScoreOfBits(score)), kMore));
  }

  const DrawKey key_;
  Shared& shared_;
  float units_to_beat_ = INFINITY;
  uint64_t best_ = kScoreOfZero;
  int32_t best_id_ = -1;
};

// Returns argmin_x(E(x) / p(x)), with the lowest id among equals, and -1 if every p is 0.
__device__ int32_t CoupledArgminOfRow(const float* log_probs, size_t size, const DrawKey& key,
                                      Shared* shared) {
  // The first tokens of the threads tell a score that must be beaten.
  float bound = INFINITY;
  for (size_t id = 2 * threadIdx.x; id < 2 * threadIdx.x + 2 && id < size; ++id) {
    if (log_probs[id] == -INFINITY) continue;
    const uint4 words = CoupledWords(key, threadIdx.x);
    bound = fminf(bound, AboveScore(id % 2 == 0 ? words.x : words.z, log_probs[id]));
  }
  bound = -BlockMax(-bound, shared->floats);
  if (threadIdx.x == 0) shared->score_bound = ~__float_as_uint(bound);
  __syncthreads();
  CoupledSearch search(key, shared);
  ScanGroups<kTwoInFlight>(log_probs, size, -INFINITY, [&](unsigned first, const float4& group) {
    search.Hear();
    search.Meet(first / 2, group.x, group.y);
    search.Meet(first / 2 + 1, group.z, group.w);
  });
  return search.Winner();
}

__global__ void __launch_bounds__(kThreads) DrawRowToken(DeviceDrawArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const RowToDraw draw = args.draws[blockIdx.x];
  const float* const values = args.values + blockIdx.x * args.stride;
  const size_t size = args.vocabulary_size;
  int32_t token_id = -1;
  if (args.not_finite[blockIdx.x] == 0 && draw.how != RowDraw::kNone) {
    if (draw.how == RowDraw::kPlain || draw.how == RowDraw::kTarget) {
      const double u = draw.how == RowDraw::kPlain
                           ? DeviceUniform(draw.key, DrawPurpose::kPropose)
                           : DeviceUniform(TargetKey(draw.key), DrawPurpose::kBonus);
      token_id = DrawRow(values, size, u, shared->sums, shared->keys);
    } else {
      if (draw.how == RowDraw::kCoupled) {
        token_id = CoupledArgminOfRow(values, size, draw.key, shared);
      }
      if (token_id < 0) token_id = IdOfKey(SmallestKey(values, size, 0, shared->keys));
    }
  }
  if (threadIdx.x == 0) args.token_ids[blockIdx.x] = token_id;
}

__global__ void __launch_bounds__(kThreads) LeaveOutToken(DeviceLeaveOutArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const RowDraw how = args.draws[blockIdx.x].how;
  const int32_t token_id = args.token_ids[blockIdx.x];
  if (how == RowDraw::kNone || token_id < 0) return;
  float* const values = args.values + blockIdx.x * args.stride;
  const auto is_left = [&](size_t i) { return static_cast<int32_t>(i) != token_id; };
  float most = -INFINITY;
  for (size_t i = threadIdx.x; i < args.vocabulary_size; i += kThreads) {
    if (is_left(i)) most = fmaxf(most, values[i]);
  }
  most = BlockMax(most, shared->floats);
  if (most == -INFINITY) return;
  const bool is_normalized = how == RowDraw::kPlain;
  float log_sum = 0;
  if (is_normalized) {
    // What is left may be so unlikely that its probability is no normal float.
    double sum = 0;
    for (size_t i = threadIdx.x; i < args.vocabulary_size; i += kThreads) {
      if (is_left(i)) sum += static_cast<double>(expf(values[i] - most));
    }
    log_sum = static_cast<float>(log(BlockSum(sum, shared->sums)));
  }
  for (size_t i = threadIdx.x; i < args.vocabulary_size; i += kThreads) {
    const float left = is_normalized ? values[i] - most - log_sum : values[i];
    values[i] = is_left(i) ? left : -INFINITY;
  }
}

__global__ void __launch_bounds__(kThreads) KeepDraft(DeviceDraftArgs args) {
  const size_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= args.rows) return;
  const int32_t drawn = args.drawn[row];
  const int32_t fed = drawn < 0 ? 0 : drawn;
  if (args.fed != nullptr) {
    args.fed[row] = fed;
    args.drafts[row * args.stride + args.pass] = fed;
  }
  args.record[row * args.stride + args.pass] = drawn;
}

}  // namespace

absl::Status DrawTokens(const DeviceDrawArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("DrawTokens", DrawRowToken,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

absl::Status LeaveOutTokens(const DeviceLeaveOutArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("LeaveOutTokens", LeaveOutToken,
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
