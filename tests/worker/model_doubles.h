// Models that tests of the workers put in the place of a real one.
#ifndef TANDEM_TESTS_WORKER_MODEL_DOUBLES_H_
#define TANDEM_TESTS_WORKER_MODEL_DOUBLES_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/model/llama.h"
#include "common/status.h"

namespace tandem::testing {

// Counts rows and computes nothing: for tests of bookkeeping.
class RowCountingModel final : public LlamaModel {
 public:
  RowCountingModel() {
    config_.vocabulary_size = 16;
    config_.max_position_embeddings = 1024;
    config_.num_layers = 1;
    config_.num_kv_heads = 1;
    config_.head_size = 1;
  }
  const ModelConfig& config() const override { return config_; }
  uint64_t weight_bytes() const override { return 0; }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override {
    for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
    return LogitsView{};
  }

 private:
  ModelConfig config_;
};

// A real model whose logits are NaN in every row that follows `poison`, and that fails as a whole
// when it is fed `bomb`.
class PoisonedModel final : public LlamaModel {
 public:
  PoisonedModel(std::unique_ptr<LlamaModel> model, int32_t poison, int32_t bomb)
      : model_(std::move(model)), poison_(poison), bomb_(bomb) {}

  const ModelConfig& config() const override { return model_->config(); }
  uint64_t weight_bytes() const override { return model_->weight_bytes(); }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override {
    TANDEM_ASSIGN_OR_RETURN(const LogitsView logits, model_->Forward(items));
    logits_.clear();
    const size_t vocabulary_size = config().vocabulary_size;
    size_t row = 0;
    for (const ForwardItem& item : items) {
      for (int32_t token : item.token_ids) {
        if (token == bomb_) return Internal("fed a bomb");
      }
      for (int32_t token : item.token_ids.last(item.num_logits)) {
        logits_.insert(logits_.end(), logits.row(row), logits.row(row) + vocabulary_size);
        if (token == poison_) logits_.back() = std::numeric_limits<float>::quiet_NaN();
        ++row;
      }
    }
    return LogitsView{.data = logits_.data(), .stride = vocabulary_size, .rows = row};
  }

 private:
  std::unique_ptr<LlamaModel> model_;
  int32_t poison_;
  int32_t bomb_;
  std::vector<float> logits_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_WORKER_MODEL_DOUBLES_H_
