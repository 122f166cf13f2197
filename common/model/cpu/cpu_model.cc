// The language model on the CPU. Its weights are mapped from files, and its decoder runs on
// CpuBackend.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
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
        pool_(pool),
        backend_(&description_, &weights_, pool),
        decoder_(&description_, &backend_) {}

  const ModelDescription& description() const override { return description_; }
  uint64_t weight_bytes() const override {
    return checkpoint_->mapped_bytes() + (heads_ != nullptr ? heads_->weight_bytes() : 0);
  }
  std::string fingerprint() const override { return fingerprint_; }
  SelfDrafter* self_drafter() override { return heads_.get(); }
  RowFeatures stored_features() const override { return backend_.stored_features(); }
  uint64_t progress() const override {
    const std::lock_guard<std::mutex> lock(heads_mutex_);
    return backend_.progress() + former_progress_ + (heads_ != nullptr ? heads_->progress() : 0);
  }
  absl::StatusOr<std::unique_ptr<SelfDrafter>> LoadHeads(
      const std::filesystem::path& folder) override {
    TANDEM_ASSIGN_OR_RETURN(const HeadsKind kind, KindOfHeads(folder));
    switch (kind) {
      case HeadsKind::kEagle:
        return CpuEagle::Load(folder, description_, weights_, pool_);
      case HeadsKind::kLayerSkip:
        return CpuTargetSteps::LoadLayerSkip(folder, description_, weights_, pool_);
      case HeadsKind::kPass:
        return CpuTargetSteps::LoadPass(folder, description_, weights_, pool_);
      case HeadsKind::kMedusa:
        break;
    }
    return CpuHeads::Load(folder, description_, weights_.output, &backend_, pool_);
  }
  absl::Status AdoptHeads(std::unique_ptr<SelfDrafter> heads) override {
    if (heads != nullptr) {
      backend_.KeepFeatures();
      RowFeatures features = heads->row_features();
      if (!features.parts.empty()) backend_.Store(std::move(features));
    }
    const std::lock_guard<std::mutex> lock(heads_mutex_);
    if (heads_ != nullptr) former_progress_ += heads_->progress();
    heads_ = std::move(heads);
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
  ThreadPool* pool_;
  CpuBackend backend_;
  Decoder decoder_;
  // Guards the pointer against other threads that ask for the progress.
  mutable std::mutex heads_mutex_;
  std::unique_ptr<SelfDrafter> heads_;  // null: the model has none
  uint64_t former_progress_ = 0;        // that of heads that were replaced
};

}  // namespace

absl::StatusOr<std::unique_ptr<SelfDrafter>> LanguageModel::LoadHeads(
    const std::filesystem::path& /*folder*/) {
  return FailedPrecondition(
      "heads of this backend are loaded with the model alone: start the verifier with other "
      "--heads");
}

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Load(
    const std::filesystem::path& folder, ThreadPool* pool, const std::filesystem::path& heads) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription description, ModelDescription::Load(folder));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::Load(*checkpoint, description));
  checkpoint->WillNeed();
  auto model = std::make_unique<CpuModel>(std::move(description), std::move(checkpoint),
                                          std::move(weights), pool);
  if (!heads.empty()) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SelfDrafter> loaded, model->LoadHeads(heads));
    TANDEM_RETURN_IF_ERROR(model->AdoptHeads(std::move(loaded)));
  }
  return model;
}

}  // namespace tandem
