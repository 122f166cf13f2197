// Judging on a GPU: logits and log-probabilities stay there. Verdicts come to the host, and the
// log-probs of a few tokens that a client asked for.
#ifndef TANDEM_SERVICES_VERIFIER_CUDA_JUDGE_H_
#define TANDEM_SERVICES_VERIFIER_CUDA_JUDGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_llama.h"
#include "services/verifier/judge.h"

namespace tandem {

// Draft rows, in the host's memory or the device's, are copied first: what a drafter can write to
// must not change while threads of a kernel look at it.
class CudaJudge final : public Judge {
 public:
  // `model` must outlive it. PRECOND: it was loaded with CudaLlamaOptions::judges.
  explicit CudaJudge(CudaLlama* model) : model_(model) {}

  absl::Status Run(std::span<Judgement> judgements) override;
  bool checks_draft_rows() const override { return true; }

 private:
  // Of a group of judgements, in the order of its blocks.
  struct Batch {
    std::vector<Judgement*> sampled;
    std::vector<size_t> lengths_before;  // of the slots
    std::vector<BlockToVerify> blocks;
    std::vector<ReportToMake> wanted;
    std::vector<DeviceSampler::Row> rows;
    std::vector<int32_t> block_of_row;
    bool any_reports = false;
  };

  // Together they want DeviceSampler::kMaxRows rows of logits at most.
  absl::Status RunGroup(std::span<Judgement> group);
  absl::Status Enqueue(std::span<Judgement> group, Batch& batch);
  absl::Status TellSampler(Batch& batch);
  void Read(const Batch& batch) const;

  CudaLlama* model_;
  PinnedMemory verdicts_;  // [kMaxRows] DeviceVerdict
  PinnedMemory reports_;   // [kMaxRows] DeviceReport
};

// Null: the model is none of a GPU.
std::unique_ptr<Judge> MakeCudaJudge(LlamaModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_CUDA_JUDGE_H_
