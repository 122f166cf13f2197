// The language model on the CPU. Its weights are mapped from files, and its decoder runs on
// CpuBackend.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/model/checkpoint/checkpoint.h"
#include "common/model/cpu/cpu_backend.h"
#include "common/model/decoder.h"
#include "common/model/heads/cpu_heads.h"
#include "common/model/heads/cpu_target_steps.h"
#include "common/model/heads/eagle/cpu_eagle.h"
#include "common/model/heads/heads_kind.h"
#include "common/model/language_model.h"
#include "common/model/model_fingerprint.h"
#include "common/model/model_weights.h"
#include "common/status.h"

namespace tandem {
namespace {

class CpuModel final : public LanguageModel {
 public:
  CpuModel(ModelDescription description, std::unique_ptr<Checkpoint> checkpoint,
           ModelWeights weights, ThreadPool* pool)
      : description_(std::move(description)),
        checkpoint_(std::move(checkpoint)),
        weights_(std::move(weights)),
        fingerprint_(FingerprintModel(weights_, description_)),
        backend_(&description_, &weights_, pool),
        decoder_(&description_, &backend_) {}

  const ModelDescription& description() const override { return description_; }
  uint64_t weight_bytes() const override {
    return checkpoint_->mapped_bytes() + (heads_ != nullptr ? heads_->weight_bytes() : 0);
  }
  std::string fingerprint() const override { return fingerprint_; }
  SelfDrafter* self_drafter() override { return heads_.get(); }
  uint64_t progress() const override {
    return backend_.progress() + (heads_ != nullptr ? heads_->progress() : 0);
  }
  // Called once, before the first pass.
  absl::Status LoadHeads(const std::filesystem::path& folder, ThreadPool* pool) {
    TANDEM_ASSIGN_OR_RETURN(const HeadsKind kind, KindOfHeads(folder));
    switch (kind) {
      case HeadsKind::kEagle: {
        TANDEM_ASSIGN_OR_RETURN(heads_, CpuEagle::Load(folder, description_, weights_, pool));
        backend_.Store(heads_->row_features());
        break;
      }
      case HeadsKind::kLayerSkip: {
        TANDEM_ASSIGN_OR_RETURN(
            heads_, CpuTargetSteps::LoadLayerSkip(folder, description_, weights_, pool));
        break;
      }
      case HeadsKind::kPass: {
        TANDEM_ASSIGN_OR_RETURN(heads_,
                                CpuTargetSteps::LoadPass(folder, description_, weights_, pool));
        break;
      }
      case HeadsKind::kMedusa: {
        TANDEM_ASSIGN_OR_RETURN(
            heads_, CpuHeads::Load(folder, description_, weights_.output, &backend_, pool));
        break;
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override {
    TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
    TANDEM_RETURN_IF_ERROR(decoder_.Run(items));
    return backend_.logits();
  }

 private:
  ModelDescription description_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelWeights weights_;
  std::string fingerprint_;
  CpuBackend backend_;
  Decoder decoder_;
  std::unique_ptr<SelfDrafter> heads_;  // null: the model has none
};

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Load(
    const std::filesystem::path& folder, ThreadPool* pool, const std::filesystem::path& heads) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription description, ModelDescription::Load(folder));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::Load(*checkpoint, description));
  checkpoint->WillNeed();
  auto model = std::make_unique<CpuModel>(std::move(description), std::move(checkpoint),
                                          std::move(weights), pool);
  if (!heads.empty()) TANDEM_RETURN_IF_ERROR(model->LoadHeads(heads, pool));
  return model;
}

}  // namespace tandem
