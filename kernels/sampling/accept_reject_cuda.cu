// Accept/reject of draft blocks on a GPU (Leviathan et al. 2023, Algorithm 1). Each thread block
// judges one draft block. The walk over the rows looks at one token of each row. Only the row where
// the walk ends is read over the whole vocabulary.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw_row.cuh"
#include "kernels/sampling/random/philox.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 512;

struct Shared {
  double sums[kWarpSize];
  uint64_t keys[kWarpSize];
};

// IsDraftRowValid.
__device__ bool DraftRowGives(const float* log_probs, size_t size, int32_t token_id,
                              double* scratch) {
  bool at_most_one = true;
  double sum = 0;
  for (size_t i = threadIdx.x; i < size; i += kThreads) {
    at_most_one = at_most_one && log_probs[i] <= 1e-5f;  // false of NaN
    sum = __dadd_rn(sum, static_cast<double>(expf(log_probs[i])));
  }
  sum = BlockSum(sum, scratch);
  return __syncthreads_and(at_most_one ? 1 : 0) != 0 && fabs(sum - 1.0) <= 1e-3 &&
         exp(static_cast<double>(log_probs[token_id])) > 0;
}

// Walks the rows until a row rejects its draft token or is the last one. All threads do the same.
// Sets all of `verdict` except a token that must still be drawn from the row after the accepted
// ones. Returns whether there is such a token.
__device__ bool WalkRows(const DeviceVerifyArgs& args, const BlockToVerify& block,
                         int32_t num_drafted, DeviceVerdict* verdict) {
  for (int32_t i = 0;; ++i) {
    const int32_t row = block.first_row + i;
    const float* const values = args.values + static_cast<size_t>(row) * args.stride;
    verdict->num_accepted = i;
    if (args.not_finite[row] != 0) {
      verdict->finite = 0;
      return false;
    }
    const bool is_drafted = i < num_drafted;
    const int32_t drafted = is_drafted ? block.draft_token_ids[i] : -1;
    if (block.how == RowDraw::kPlain) {
      if (!is_drafted) return true;
      DrawKey key = block.key;
      key.position += static_cast<uint64_t>(i);
      const double draft_prob =
          block.draft_log_probs == nullptr
              ? 1.0
              : exp(static_cast<double>(
                    block.draft_log_probs[static_cast<size_t>(i) * args.vocabulary_size +
                                          static_cast<size_t>(drafted)]));
      const double target_prob = exp(static_cast<double>(values[drafted]));
      if (!AcceptsDraft(DeviceUniform(key, DrawPurpose::kAccept),
                        static_cast<double>(block.lenience), draft_prob, target_prob)) {
        return true;
      }
      continue;
    }
    const int32_t own = args.row_token_ids[row];
    if (is_drafted && drafted == own) continue;
    // Lenient greedy: p(x) >= l * max p at temperature 1, where the normalizer cancels.
    if (is_drafted && block.how == RowDraw::kGreedy && block.lenience < 1 &&
        exp(static_cast<double>(values[drafted]) - static_cast<double>(values[own])) >=
            static_cast<double>(block.lenience)) {
      continue;
    }
    verdict->next_token_id = own;
    return false;
  }
}

// Draws the token after a rejection from max(0, p - q), normalized, or from p if p and q are equal
// apart from rounding.
__device__ int32_t DrawRecovered(const float* p, const float* q, size_t size, int32_t rejected,
                                 double u, Shared* shared) {
  int32_t token_id = -1;
  if (q != nullptr) {
    token_id = DrawByInverseCdf(size, u, shared->sums, [&](size_t i) {
      if (!(p[i] > q[i])) return 0.0;
      return fmax(0.0, __dadd_rn(exp(static_cast<double>(p[i])), -exp(static_cast<double>(q[i]))));
    });
  } else {  // q is one-hot, and a lenience let the token fail: the residual is p without it
    token_id = DrawByInverseCdf(size, u, shared->sums, [&](size_t i) {
      return static_cast<int32_t>(i) == rejected ? 0.0 : static_cast<double>(expf(p[i]));
    });
  }
  return token_id >= 0 ? token_id : DrawRow(p, size, u, shared->sums, shared->keys);
}

__global__ void __launch_bounds__(kThreads) VerifyOneBlock(DeviceVerifyArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const BlockToVerify block = args.blocks[blockIdx.x];
  const size_t size = args.vocabulary_size;
  DeviceVerdict verdict;
  if (block.how == RowDraw::kPlain && block.draft_log_probs != nullptr) {
    for (int32_t i = 0; i < block.num_drafted && verdict.drafts_valid != 0; ++i) {
      verdict.drafts_valid = DraftRowGives(block.draft_log_probs + static_cast<size_t>(i) * size,
                                           size, block.draft_token_ids[i], shared->sums)
                                 ? 1
                                 : 0;
    }
  }
  const int32_t num_drafted = verdict.drafts_valid != 0 ? block.num_drafted : 0;
  if (WalkRows(args, block, num_drafted, &verdict)) {
    const int32_t i = verdict.num_accepted;
    const float* const p = args.values + static_cast<size_t>(block.first_row + i) * args.stride;
    DrawKey key = block.key;
    key.position += static_cast<uint64_t>(i);
    if (i == num_drafted) {
      verdict.next_token_id = DrawRow(p, size, DeviceUniform(TargetKey(key), DrawPurpose::kBonus),
                                      shared->sums, shared->keys);
    } else {
      const float* const q = block.draft_log_probs == nullptr
                                 ? nullptr
                                 : block.draft_log_probs + static_cast<size_t>(i) * size;
      verdict.next_token_id = DrawRecovered(p, q, size, block.draft_token_ids[i],
                                            DeviceUniform(key, DrawPurpose::kResample), shared);
    }
  }
  if (threadIdx.x == 0) args.verdicts[blockIdx.x] = verdict;
}

}  // namespace

absl::Status AcceptRejectBlocks(const DeviceVerifyArgs& args, CudaStream stream) {
  if (args.num_blocks == 0) return absl::OkStatus();
  return Launch("AcceptRejectBlocks", VerifyOneBlock,
                {dim3(static_cast<unsigned>(args.num_blocks)), dim3(kThreads), sizeof(Shared)},
                stream, args);
}

}  // namespace tandem
