// Reports of committed tokens on a GPU: the audit's two numbers and the log-probabilities that a
// client asked for. Each thread block reports on one step of an accepted path. Reports of rows that
// belong to no path have a kernel of their own.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/random/philox.cuh"
#include "kernels/sampling/transform/sort_key.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 512;

struct Shared {
  double sums[kWarpSize];
  uint64_t keys[kWarpSize];
};

// A step of an accepted path.
struct Step {
  int32_t node = kDraftRoot;  // the token before
  int32_t token_id = -1;      // the token that was committed
  DrawKey key;
};

__device__ double TargetProb(const float* p, int32_t token_id) {
  return fmin(1.0, exp(static_cast<double>(p[token_id])));
}

// Returns 1[x in C] - p(C) for the set C of the node's children, which were found.
//   p          [V]  the target's log-probabilities
//   token_ids  the draft tokens
__device__ double FoundSetExcess(const DraftShape& shape, const int32_t* token_ids, const float* p,
                                 const Step& step) {
  double excess = 0;
  const int32_t first = shape.FirstChild(step.node);
  for (int32_t child = first; child >= 0; child = shape.NextChild(step.node, child)) {
    const int32_t member = token_ids[child];
    int32_t same = first;
    while (token_ids[same] != member) same = shape.NextChild(step.node, same);
    if (same != child) continue;  // the same token again
    excess = __dadd_rn(excess, (step.token_id == member ? 1.0 : 0.0) - TargetProb(p, member));
  }
  return fmax(-1.0, excess);  // the probabilities of a set may sum to a little more than 1
}

// SampleForAudit.
//   p  [V]  the target's log-probabilities
__device__ AuditSample Audit(const BlockToVerify& block, const DraftShape& shape, const Step& step,
                             const float* p, size_t size, Shared* shared) {
  constexpr double kLargestBelowOne = 1 - 0x1p-53;
  const int32_t token_id = step.token_id;
  AuditSample sample;
  if (TargetProb(p, token_id) == 0) {
    sample.uniform = 1;
  } else {
    double below = 0;
    for (size_t i = threadIdx.x; i < static_cast<size_t>(token_id); i += kThreads) {
      below = __dadd_rn(below, static_cast<double>(expf(p[i])));
    }
    below = BlockSum(below, shared->sums);
    const double v = DeviceUniform(step.key, DrawPurpose::kAudit);
    sample.uniform =
        fmin(__dadd_rn(below, __dmul_rn(v, TargetProb(p, token_id))), kLargestBelowOne);
  }
  const int32_t first = shape.FirstChild(step.node);
  if (first < 0) return sample;
  const float* const q = block.DraftRow(first, size);
  if (q == nullptr) {
    sample.draft_mode_excess = FoundSetExcess(shape, block.draft_token_ids, p, step);
  } else {
    const int32_t mode = IdOfKey(SmallestKey(q, size, 0, shared->keys));
    sample.draft_mode_excess = (token_id == mode ? 1.0 : 0.0) - TargetProb(p, mode);
  }
  return sample;
}

__device__ float LogProb(float logit, double log_sum) {
  return static_cast<float>(__dadd_rn(static_cast<double>(logit), -log_sum));
}

// The largest entries as in ReportLogProbs. `report` is the block's own in device memory. Returns
// the log of the sum of the row's exponentials.
__device__ double ReportTop(const float* logits, size_t size, int32_t num_top, Shared* shared,
                            DeviceReport* report) {
  uint64_t key = SmallestKey(logits, size, 0, shared->keys);
  const float largest = ValueOfKey(key);
  double sum = 0;
  for (size_t i = threadIdx.x; i < size; i += kThreads) {
    sum = __dadd_rn(sum, static_cast<double>(expf(__fadd_rn(logits[i], -largest))));
  }
  const double log_sum = __dadd_rn(static_cast<double>(largest), log(BlockSum(sum, shared->sums)));
  int32_t found = 0;
  for (; found < num_top && static_cast<size_t>(found) < size; ++found) {
    if (found > 0) key = SmallestKey(logits, size, key, shared->keys);
    if (threadIdx.x == 0) report->top[found] = {IdOfKey(key), LogProb(ValueOfKey(key), log_sum)};
  }
  if (threadIdx.x == 0) report->num_top = found;
  return log_sum;
}

__global__ void __launch_bounds__(kThreads) ReportStep(DeviceReportArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const int32_t block_index = args.block_of_row[blockIdx.x];
  const BlockToVerify block = args.verify.blocks[block_index];
  const DeviceVerdict& verdict = args.verify.verdicts[block_index];
  const ReportToMake wanted = args.wanted[block_index];
  const int32_t i = static_cast<int32_t>(blockIdx.x) - block.first_row;
  if (verdict.finite == 0 || i > verdict.num_accepted) return;
  const size_t size = args.verify.vocabulary_size;
  const DraftShape shape = verdict.drafts_valid != 0 ? block.shape() : DraftShape();
  Step step = {.node = i > 0 ? verdict.path[i - 1] : kDraftRoot,
               .token_id = i < verdict.num_accepted ? block.draft_token_ids[verdict.path[i]]
                                                    : verdict.next_token_id,
               .key = block.key};
  step.key.position += static_cast<uint64_t>(i);
  // The row that judged the children of the node.
  const size_t begin = static_cast<size_t>(block.first_row + step.node + 1) * args.verify.stride;
  DeviceReport* const report = &args.reports[blockIdx.x];

  if (wanted.audit && (block.how == RowDraw::kPlain || block.how == RowDraw::kTarget)) {
    const AuditSample sample = Audit(block, shape, step, args.verify.values + begin, size, shared);
    if (threadIdx.x == 0) report->audit = sample;
  }
  if (wanted.num_logprobs >= 0) {
    const float* const logits = args.logits + begin;
    const double log_sum = ReportTop(logits, size, wanted.num_logprobs, shared, report);
    if (threadIdx.x == 0) report->log_prob = LogProb(logits[step.token_id], log_sum);
  }
}

__global__ void __launch_bounds__(kThreads) ReportRow(DeviceRowReportArgs args) {
  const float* const logits = args.logits + blockIdx.x * args.stride;
  DeviceReport* const report = &args.reports[blockIdx.x];
  bool is_finite = true;
  ScanRow(logits, args.vocabulary_size, 0,
          [&](unsigned, float logit) { is_finite = is_finite && IsFiniteFloat(logit); });
  if (__syncthreads_and(is_finite ? 1 : 0) == 0) {
    if (threadIdx.x == 0) report->num_top = 0;
    return;
  }
  const double log_sum =
      ReportTop(logits, args.vocabulary_size, args.num_top, SharedMemory<Shared>(), report);
  if (threadIdx.x == 0) report->log_prob = LogProb(0, log_sum);
}

}  // namespace

absl::Status MakeReports(const DeviceReportArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("MakeReports", ReportStep,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

absl::Status ReportRows(const DeviceRowReportArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("ReportRows", ReportRow,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

}  // namespace tandem
