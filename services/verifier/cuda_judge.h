// Judging on a GPU. Logits and log-probabilities stay on the GPU. The host receives the verdicts,
// and the log-probabilities of the few tokens that a client asked for.
#ifndef TANDEM_SERVICES_VERIFIER_CUDA_JUDGE_H_
#define TANDEM_SERVICES_VERIFIER_CUDA_JUDGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_model.h"
#include "services/verifier/judge.h"

namespace tandem {

// Draft rows, in host or device memory, are copied first: a drafter can write to the ring's memory,
// and the rows must not change while the threads of a kernel read them.
class CudaJudge final : public Judge {
 public:
  // `model` must outlive the judge. PRECOND: the model was loaded with CudaModelOptions::judges.
  explicit CudaJudge(CudaModel* model) : model_(model) {}

  absl::Status Run(std::span<JudgeTask> tasks) override;
  bool checks_draft_rows() const override { return true; }

 private:
  // The sampled tasks of a group, in the order of the blocks.
  struct Batch {
    std::vector<JudgeTask*> sampled;
    std::vector<size_t> lengths_before;  // lengths of the slots before the pass
    std::vector<BlockToVerify> blocks;
    std::vector<ReportToMake> wanted;
    std::vector<DeviceSampler::Row> rows;
    std::vector<int32_t> block_of_row;
    size_t num_scored = 0;            // rows of logits before those of the blocks
    size_t scored_length_before = 0;  // length of the scored task's slot before the pass
    bool any_reports = false;
  };

  // PRECOND: the tasks want at most DeviceSampler::kMaxRows rows of logits together, and a task
  // with scored rows is alone.
  absl::Status RunGroup(std::span<JudgeTask> group);
  absl::Status Enqueue(std::span<JudgeTask> group, Batch& batch);
  absl::Status TellSampler(Batch& batch);
  // Adds the rows of a block, which draw their tokens in the way `how`.
  absl::Status AddRows(const JudgeTask& task, size_t context, RowDraw how, Batch& batch);
  // Copies the logits of scored rows to the host, which scores them.
  absl::Status FetchScored(const DeviceLogits& logits, size_t num_scored);
  // Reads the verdicts, and keeps the features that proposals are made from.
  absl::Status Read(std::span<JudgeTask> group, const Batch& batch) const;
  // Scores the rows of the task. Returns false if they are not finite: the task's rows are dropped.
  bool ReadScores(const Batch& batch, JudgeTask& task) const;

  CudaModel* model_;
  PinnedMemory verdicts_;  // [kMaxRows] DeviceVerdict
  PinnedMemory reports_;   // [kMaxRows] DeviceReport
  PinnedMemory scored_;    // [kMaxScoredRows, scored_stride_] logits; null before they are wanted
  size_t scored_stride_ = 0;
};

// Returns null if `model` does not compute on a GPU.
std::unique_ptr<Judge> MakeCudaJudge(LanguageModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_CUDA_JUDGE_H_
