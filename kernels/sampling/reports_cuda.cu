// Reports of committed tokens on a GPU: the audit's two numbers and the log-probabilities that a
// client asked for. Each thread block reports on one row.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/random/philox.cuh"
#include "kernels/sampling/transform/sort_key.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 512;

struct Shared {
  double sums[kWarpSize];
  uint64_t keys[kWarpSize];
};

// SampleForAudit.
//   p  [V]  the target's log-probabilities
//   q  [V]  the drafter's; null: one-hot at `drafted`
__device__ AuditSample Audit(const float* p, const float* q, size_t size, int32_t drafted,
                             int32_t token_id, const DrawKey& key, Shared* shared) {
  constexpr double kLargestBelowOne = 1 - 0x1p-53;
  const auto target_prob = [&](int32_t id) { return fmin(1.0, exp(static_cast<double>(p[id]))); };
  AuditSample sample;
  if (target_prob(token_id) == 0) {
    sample.uniform = 1;
  } else {
    double below = 0;
    for (size_t i = threadIdx.x; i < static_cast<size_t>(token_id); i += kThreads) {
      below = __dadd_rn(below, static_cast<double>(expf(p[i])));
    }
    below = BlockSum(below, shared->sums);
    const double v = DeviceUniform(key, DrawPurpose::kAudit);
    sample.uniform = fmin(__dadd_rn(below, __dmul_rn(v, target_prob(token_id))), kLargestBelowOne);
  }
  if (drafted >= 0) {
    const int32_t mode = q == nullptr ? drafted : IdOfKey(SmallestKey(q, size, 0, shared->keys));
    sample.draft_mode_excess = (token_id == mode ? 1.0 : 0.0) - target_prob(mode);
  }
  return sample;
}

// ReportLogProbs; `report` is the block's own in device memory.
__device__ void ReportTop(const float* logits, size_t size, int32_t token_id, int32_t num_top,
                          Shared* shared, DeviceReport* report) {
  uint64_t key = SmallestKey(logits, size, 0, shared->keys);
  const float largest = ValueOfKey(key);
  double sum = 0;
  for (size_t i = threadIdx.x; i < size; i += kThreads) {
    sum = __dadd_rn(sum, static_cast<double>(expf(__fadd_rn(logits[i], -largest))));
  }
  const double log_sum = __dadd_rn(static_cast<double>(largest), log(BlockSum(sum, shared->sums)));
  const auto log_prob = [&](float logit) {
    return static_cast<float>(__dadd_rn(static_cast<double>(logit), -log_sum));
  };
  int32_t found = 0;
  for (; found < num_top && static_cast<size_t>(found) < size; ++found) {
    if (found > 0) key = SmallestKey(logits, size, key, shared->keys);
    if (threadIdx.x == 0) report->top[found] = {IdOfKey(key), log_prob(ValueOfKey(key))};
  }
  if (threadIdx.x != 0) return;
  report->log_prob = log_prob(logits[token_id]);
  report->num_top = found;
}

__global__ void __launch_bounds__(kThreads) ReportRow(DeviceReportArgs args) {
  Shared* const shared = SharedMemory<Shared>();
  const int32_t row = static_cast<int32_t>(blockIdx.x);
  const int32_t block_index = args.block_of_row[row];
  const BlockToVerify block = args.verify.blocks[block_index];
  const DeviceVerdict verdict = args.verify.verdicts[block_index];
  const ReportToMake wanted = args.wanted[block_index];
  const int32_t i = row - block.first_row;
  if (verdict.finite == 0 || i > verdict.num_accepted) return;
  const size_t size = args.verify.vocabulary_size;
  const bool is_drafted = verdict.drafts_valid != 0 && i < block.num_drafted;
  const int32_t drafted = is_drafted ? block.draft_token_ids[i] : -1;
  const int32_t token_id = i < verdict.num_accepted ? drafted : verdict.next_token_id;
  DeviceReport* const report = &args.reports[row];

  if (wanted.audit && (block.how == RowDraw::kPlain || block.how == RowDraw::kTarget)) {
    DrawKey key = block.key;
    key.position += static_cast<uint64_t>(i);
    const float* const q = is_drafted && block.draft_log_probs != nullptr
                               ? block.draft_log_probs + static_cast<size_t>(i) * size
                               : nullptr;
    const AuditSample sample = Audit(args.verify.values + blockIdx.x * args.verify.stride, q, size,
                                     drafted, token_id, key, shared);
    if (threadIdx.x == 0) report->audit = sample;
  }
  if (wanted.num_logprobs >= 0) {
    ReportTop(args.logits + blockIdx.x * args.verify.stride, size, token_id, wanted.num_logprobs,
              shared, report);
  }
}

}  // namespace

absl::Status MakeReports(const DeviceReportArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("MakeReports", ReportRow,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(Shared)}, stream,
                args);
}

}  // namespace tandem
