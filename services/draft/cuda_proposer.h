// Drafting on a GPU. The passes of a block follow each other on the device, and each pass feeds the
// tokens that the device drew in the pass before. The host receives only the token ids, once for
// all passes.
#ifndef TANDEM_SERVICES_DRAFT_CUDA_PROPOSER_H_
#define TANDEM_SERVICES_DRAFT_CUDA_PROPOSER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_model.h"
#include "services/draft/proposer.h"

namespace tandem {

// Rows of log-probabilities that are wanted in host memory are copied there.
class CudaProposer final : public Proposer {
 public:
  // `model` must outlive the proposer.
  explicit CudaProposer(CudaModel* model) : model_(model) {}

  absl::Status Run(std::span<DraftTask> tasks) override;
  double catch_up_seconds() const override { return catch_up_seconds_; }

 private:
  // PRECOND: at most DeviceSampler::kMaxRows tasks, with the longest drafts first.
  absl::Status RunGroup(std::span<DraftTask* const> group);
  absl::Status Enqueue(std::span<DraftTask* const> group);
  // The rows that draw tokens in one pass: those of the chain's tokens, and then those of the first
  // siblings, of the second ones, and so on.
  using PassRows = std::vector<DeviceSampler::Rows>;
  // Sends the sampler the rows of all passes. Element i of the result has the rows of pass i.
  absl::StatusOr<std::vector<PassRows>> TellSampler(std::span<DraftTask* const> drafting);
  // Enqueues the draws of one pass, and the copies of the rows that are wanted.
  absl::Status EnqueueDraws(std::span<DraftTask* const> drafting, size_t pass, const PassRows& rows,
                            const DeviceLogits& logits);
  // Copies the drawn ids into the tasks. PRECOND: the device has finished.
  void Read(std::span<DraftTask* const> drafting) const;

  CudaModel* model_;
  DeviceEvent started_;
  DeviceEvent caught_up_;
  PinnedMemory record_;  // [1 + kMaxSiblings, kMaxRows, kMaxDrafts] i32, as DeviceSampler's
  double catch_up_seconds_ = 0;
};

// Returns null if `model` does not compute on a GPU.
std::unique_ptr<Proposer> MakeCudaProposer(LanguageModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_CUDA_PROPOSER_H_
