// The language model on the CPU. Its weights are mapped from files, and its decoder runs on
// CpuBackend.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/model/checkpoint/checkpoint.h"
#include "common/model/cpu_backend.h"
#include "common/model/decoder.h"
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
  uint64_t weight_bytes() const override { return checkpoint_->mapped_bytes(); }
  std::string fingerprint() const override { return fingerprint_; }
  uint64_t progress() const override { return backend_.progress(); }
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
};

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Load(
    const std::filesystem::path& folder, ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription description, ModelDescription::Load(folder));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::Load(*checkpoint, description));
  checkpoint->WillNeed();
  return std::make_unique<CpuModel>(std::move(description), std::move(checkpoint),
                                    std::move(weights), pool);
}

}  // namespace tandem
