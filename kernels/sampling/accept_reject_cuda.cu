// Accept/reject of drafts on a GPU (Leviathan et al. 2023, Algorithm 1; Miao et al. 2023, Algorithm
// 2, for siblings). Each thread block judges one draft. A walk along first children looks at one
// token of each row. A row is read over the whole vocabulary where the walk ends, and once for each
// sibling that is tested after a rejection.
#include <cmath>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw_row.cuh"
#include "kernels/sampling/random/philox.cuh"
#include "kernels/sampling/transform/row_scan.cuh"

namespace tandem {
namespace {

constexpr int kThreads = kDrawThreads;

struct Shared {
  double sums[kWarpSize];
  uint64_t keys[kWarpSize];
  // The state of a DeviceResidual.
  double totals[kMaxDraftTokens];
  int32_t rejected[kMaxDraftTokens];
};

// IsDraftRowValid.
__device__ bool DraftRowGives(const float* log_probs, size_t size, int32_t token_id,
                              double* scratch) {
  bool at_most_one = true;
  double sum = 0;
  ScanRow<kTwoInFlight>(log_probs, size, -INFINITY, [&](unsigned, float log_prob) {
    at_most_one = at_most_one && log_prob <= 1e-5f;  // false of NaN
    sum = __dadd_rn(sum, static_cast<double>(expf(log_prob)));
  });
  sum = BlockSum(sum, scratch);
  return __syncthreads_and(at_most_one ? 1 : 0) != 0 && fabs(sum - 1.0) <= 1e-3 &&
         exp(static_cast<double>(log_probs[token_id])) > 0;
}

// The walk over a draft. All threads do the same.
struct DeviceWalk {
  const BlockToVerify& block;
  const size_t size;  // vocabulary size
  const DraftShape shape;
  int32_t node = kDraftRoot;
  int32_t num_accepted = 0;

  __device__ int32_t Row() const { return block.first_row + node + 1; }
  // Returns the key of the draws at this position for the first child.
  __device__ DrawKey Key() const {
    DrawKey key = block.key;
    key.position += static_cast<uint64_t>(num_accepted);
    return key;
  }
  __device__ int32_t Token(int32_t child) const { return block.draft_token_ids[child]; }
  // Returns the child's q; null: the token was found.
  __device__ const float* DraftRow(int32_t child) const { return block.DraftRow(child, size); }
  __device__ int32_t FirstChild() const { return shape.FirstChild(node); }
  __device__ int32_t NextChild(int32_t child) const { return shape.NextChild(node, child); }
  // Returns the first of the children from `child` on that has this token. -1: there is none.
  __device__ int32_t ChildWith(int32_t token_id, int32_t child) const {
    while (child >= 0 && Token(child) != token_id) child = NextChild(child);
    return child;
  }
};

// What was decided at one node of a draft.
struct DeviceJudgment {
  int32_t child = -1;  // index of the accepted child; -1: none was accepted
  int32_t token_id = -1;
};

// Residual (residual.h): what is left of p after children of one node were rejected. All of them
// were drawn, or all were found. No weight is kept: each use computes it again from p and from the
// rejected rows. All threads call each function.
class DeviceResidual {
 public:
  __device__ DeviceResidual(const DeviceWalk& walk, const float* p, Shared* shared)
      : walk_(walk), p_(p), shared_(*shared) {}

  // Returns the probability of a token. Called after each rejection but the last one.
  __device__ double Prob(int32_t token_id) {
    if (num_rejected_ > 0 && !is_settled_) Settle();
    if (num_rejected_ == 0) return exp(static_cast<double>(p_[token_id]));
    if (are_drawn_) {
      return __ddiv_rn(DrawnWeight(token_id, {p_[token_id], FirstRejectedRow()[token_id]}),
                       shared_.totals[num_rejected_ - 1]);
    }
    if (IsRejected(token_id)) return 0;
    double removed = 0;
    for (int32_t i = 0; i < num_rejected_; ++i) {
      removed = __dadd_rn(removed, exp(static_cast<double>(p_[RejectedToken(i)])));
    }
    return __ddiv_rn(exp(static_cast<double>(p_[token_id])), __dadd_rn(1.0, -removed));
  }

  __device__ void Reject(int32_t child) {
    are_drawn_ = walk_.DraftRow(child) != nullptr;
    if (!are_drawn_ && IsRejected(walk_.Token(child))) return;
    __syncthreads();  // other threads may still read the state of the last node
    if (threadIdx.x == 0) shared_.rejected[num_rejected_] = child;
    __syncthreads();
    ++num_rejected_;
    is_settled_ = false;
  }

  __device__ int32_t Draw(double u) {
    // A rejection that leaves nothing is taken back, as Settle does.
    for (; num_rejected_ > 0; --num_rejected_) {
      const int32_t token_id = are_drawn_ ? DrawFromDrawn(u) : DrawFromFound(u);
      if (token_id >= 0) return token_id;
    }
    return DrawRow(p_, walk_.size, u, shared_.sums, shared_.keys);
  }

 private:
  __device__ int32_t RejectedToken(int32_t i) const { return walk_.Token(shared_.rejected[i]); }
  __device__ bool IsRejected(int32_t token_id) const {
    for (int32_t i = 0; i < num_rejected_; ++i) {
      if (RejectedToken(i) == token_id) return true;
    }
    return false;
  }

  // What the weight of a token mostly depends on.
  struct Pair {
    float p;
    float first;  // from the first rejected row
  };
  __device__ const float* FirstRejectedRow() const { return walk_.DraftRow(shared_.rejected[0]); }

  // Returns the weight of a token after all rejections of drawn tokens, not normalized.
  __device__ double DrawnWeight(size_t token_id, const Pair& pair) const {
    if (!(pair.p > pair.first)) return 0.0;
    double weight = fmax(
        0.0, __dadd_rn(exp(static_cast<double>(pair.p)), -exp(static_cast<double>(pair.first))));
    for (int32_t i = 1; i < num_rejected_ && weight > 0; ++i) {
      const float q = walk_.DraftRow(shared_.rejected[i])[token_id];
      weight = fmax(
          0.0, __dadd_rn(__ddiv_rn(weight, shared_.totals[i - 1]), -exp(static_cast<double>(q))));
    }
    return weight;
  }

  // Draws from what is left. -1: nothing is.
  __device__ int32_t DrawFromDrawn(double u) const {
    const float* const first = FirstRejectedRow();
    return DrawByInverseCdf<kPairsInFlight>(
        walk_.size, u, shared_.sums,
        [&](unsigned i) {
          return Pair{p_[i], first[i]};
        },
        [&](unsigned i, const Pair& pair) { return DrawnWeight(i, pair); });
  }
  __device__ int32_t DrawFromFound(double u) const {
    return DrawByInverseCdf<8>(
        walk_.size, u, shared_.sums, [&](unsigned i) { return p_[i]; },
        [&](unsigned i, float p) {
          return IsRejected(static_cast<int32_t>(i)) ? 0.0 : static_cast<double>(expf(p));
        });
  }

  // Returns the thread's share of the sum of all weights.
  __device__ double SumOfDrawnWeights() const {
    const float* const first = FirstRejectedRow();
    const auto size = static_cast<unsigned>(walk_.size);
    double total = 0;
    for (unsigned i = threadIdx.x; i < size; i += kPairsInFlight * kThreads) {
      Pair pairs[kPairsInFlight];
      TANDEM_UNROLL
      for (unsigned j = 0; j < kPairsInFlight; ++j) {
        const unsigned of = min(i + j * kThreads, size - 1);
        pairs[j] = {p_[of], first[of]};
      }
      TANDEM_UNROLL
      for (unsigned j = 0; j < kPairsInFlight; ++j) {
        const unsigned of = i + j * kThreads;
        if (of < size) total = __dadd_rn(total, DrawnWeight(of, pairs[j]));
      }
    }
    return total;
  }

  // Takes the last rejection back if it leaves nothing. Otherwise notes the sum of the weights.
  __device__ void Settle() {
    bool is_left = false;
    if (are_drawn_) {
      const double total = BlockSum(SumOfDrawnWeights(), shared_.sums);
      is_left = total > 0;
      if (threadIdx.x == 0) shared_.totals[num_rejected_ - 1] = total;
    } else {
      ScanRow<kTwoInFlight>(p_, walk_.size, -INFINITY, [&](unsigned i, float p) {
        is_left = is_left || (p > -INFINITY && !IsRejected(static_cast<int32_t>(i)));
      });
    }
    if (__syncthreads_or(is_left ? 1 : 0) == 0) --num_rejected_;
    is_settled_ = true;
  }

  static constexpr unsigned kPairsInFlight = 4;  // Pairs that a thread reads before it uses one.

  const DeviceWalk& walk_;
  const float* const p_;
  Shared& shared_;
  int32_t num_rejected_ = 0;  // entries of shared_.rejected, which are children of the node
  bool are_drawn_ = false;
  bool is_settled_ = true;  // shared_.totals has an entry for each rejection
};

// Judges a row whose token was drawn already.
//   values  [V]  the row's log-probabilities, or its adjusted logits if the block is greedy
__device__ DeviceJudgment JudgeDrawn(const DeviceWalk& walk, const float* values, int32_t own) {
  const DeviceJudgment judgment = {walk.ChildWith(own, walk.FirstChild()), own};
  if (judgment.child >= 0 || walk.block.how != RowDraw::kGreedy || !(walk.block.lenience < 1)) {
    return judgment;
  }
  for (int32_t child = walk.FirstChild(); child >= 0; child = walk.NextChild(child)) {
    // p(x) >= l * max p at temperature 1, where the normalizer cancels.
    if (exp(static_cast<double>(values[walk.Token(child)]) - static_cast<double>(values[own])) >=
        static_cast<double>(walk.block.lenience)) {
      return {child, walk.Token(child)};
    }
  }
  return judgment;
}

// Judges a row of a block that is kPlain.
//   p  [V]  the row's log-probabilities
__device__ DeviceJudgment JudgePlain(const DeviceWalk& walk, const float* p, Shared* shared) {
  DrawKey key = walk.Key();
  int32_t child = walk.FirstChild();
  // Nothing was drawn for this position yet, so the target draws as plain decoding would.
  if (child < 0 || (walk.DraftRow(child) == nullptr && !(walk.block.lenience < 1))) {
    const int32_t token_id =
        DrawRow(p, walk.size, DeviceUniform(TargetKey(key), DrawPurpose::kBonus), shared->sums,
                shared->keys);
    return {walk.ChildWith(token_id, child), token_id};
  }
  DeviceResidual left(walk, p, shared);
  bool any_drawn = false;
  for (; child >= 0; child = walk.NextChild(child), ++key.sibling) {
    const float* const q = walk.DraftRow(child);
    if (q == nullptr && any_drawn) break;
    any_drawn = q != nullptr;
    const int32_t drafted = walk.Token(child);
    const double draft_prob = q == nullptr ? 1.0 : exp(static_cast<double>(q[drafted]));
    if (AcceptsDraft(DeviceUniform(key, DrawPurpose::kAccept),
                     static_cast<double>(walk.block.lenience), draft_prob, left.Prob(drafted))) {
      return {child, drafted};
    }
    left.Reject(child);
  }
  const int32_t token_id = left.Draw(DeviceUniform(walk.Key(), DrawPurpose::kResample));
  return {walk.ChildWith(token_id, child), token_id};
}

// Returns whether each drawn token of the block comes from a row that is a distribution.
__device__ bool AreDraftRowsValid(const DeviceVerifyArgs& args, const BlockToVerify& block,
                                  Shared* shared) {
  if (block.how != RowDraw::kPlain) return true;
  const size_t size = args.vocabulary_size;
  for (int32_t i = 0; i < block.num_drafted; ++i) {
    const float* const q = block.DraftRow(i, size);
    if (q == nullptr) break;
    if (!DraftRowGives(q, size, block.draft_token_ids[i], shared->sums)) return false;
  }
  return true;
}

__global__ void __launch_bounds__(kThreads) VerifyOneBlock(DeviceVerifyArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const BlockToVerify block = args.blocks[blockIdx.x];
  DeviceVerdict* const verdict = &args.verdicts[blockIdx.x];  // the first thread writes it
  const bool is_first = threadIdx.x == 0;
  const bool valid = AreDraftRowsValid(args, block, shared);
  if (is_first) *verdict = {.drafts_valid = valid ? 1 : 0};
  DeviceWalk walk = {
      .block = block, .size = args.vocabulary_size, .shape = valid ? block.shape() : DraftShape()};
  DeviceJudgment judgment;
  bool finite = true;
  while (true) {
    const int32_t row = walk.Row();
    finite = args.not_finite[row] == 0;
    if (!finite) break;
    const float* const values = args.values + static_cast<size_t>(row) * args.stride;
    judgment = block.how == RowDraw::kPlain ? JudgePlain(walk, values, shared)
                                            : JudgeDrawn(walk, values, args.row_token_ids[row]);
    if (judgment.child < 0) break;
    if (is_first) verdict->path[walk.num_accepted] = judgment.child;
    ++walk.num_accepted;
    walk.node = judgment.child;
  }
  if (!is_first) return;
  verdict->finite = finite ? 1 : 0;
  verdict->num_accepted = walk.num_accepted;
  verdict->next_token_id = finite ? judgment.token_id : -1;
}

}  // namespace

absl::Status AcceptRejectBlocks(const DeviceVerifyArgs& args, CudaStream stream) {
  if (args.num_blocks == 0) return absl::OkStatus();
  return Launch("AcceptRejectBlocks", VerifyOneBlock,
                {dim3(static_cast<unsigned>(args.num_blocks)), dim3(kThreads), sizeof(Shared)},
                stream, args);
}

}  // namespace tandem
