// Drafting on a GPU: the passes of a block follow each other on the device, which feeds the tokens
// that it draws to itself. Only their ids come to the host, once all are there.
#ifndef TANDEM_SERVICES_DRAFT_CUDA_PROPOSER_H_
#define TANDEM_SERVICES_DRAFT_CUDA_PROPOSER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_llama.h"
#include "services/draft/proposer.h"

namespace tandem {

// Where rows of log-probabilities are wanted in the host's memory, they are copied there.
class CudaProposer final : public Proposer {
 public:
  // `model` must outlive it.
  explicit CudaProposer(CudaLlama* model) : model_(model) {}

  absl::Status Run(std::span<Proposal> proposals) override;
  double catch_up_seconds() const override { return catch_up_seconds_; }

 private:
  // At most DeviceSampler::kMaxRows of them, those with the longest drafts first.
  absl::Status RunGroup(std::span<Proposal* const> group);
  absl::Status Enqueue(std::span<Proposal* const> group);
  // Tells the sampler of all passes; [i] are the rows of pass i.
  absl::StatusOr<std::vector<DeviceSampler::Rows>> TellSampler(std::span<Proposal* const> drafting);
  // What the device drew, once it has.
  void Read(std::span<Proposal* const> drafting) const;

  CudaLlama* model_;
  DeviceEvent started_;
  DeviceEvent caught_up_;
  PinnedMemory record_;  // [kMaxRows, kMaxDrafts] i32, as KeepDrafts says
  double catch_up_seconds_ = 0;
};

// Null: the model is none of a GPU.
std::unique_ptr<Proposer> MakeCudaProposer(LlamaModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_CUDA_PROPOSER_H_
