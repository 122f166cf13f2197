// Models that replace a real one in tests of the workers.
#ifndef TANDEM_TESTS_WORKER_MODEL_DOUBLES_H_
#define TANDEM_TESTS_WORKER_MODEL_DOUBLES_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/model/language_model.h"
#include "common/status.h"

namespace tandem::testing {

// Counts rows and computes nothing, for tests of bookkeeping.
class RowCountingModel final : public LanguageModel {
 public:
  RowCountingModel() {
    description_.vocabulary_size = 16;
    description_.max_position_embeddings = 1024;
    description_.num_layers = 1;
    description_.attention.num_kv_heads = 1;
    description_.attention.head_size = 1;
  }
  const ModelDescription& description() const override { return description_; }
  uint64_t weight_bytes() const override { return 0; }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override {
    for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
    return LogitsView{};
  }

 private:
  ModelDescription description_;
};

// A real model whose logits are NaN in every row that follows `poison`. A pass fails as a whole if
// it gets `bomb`.
class PoisonedModel final : public LanguageModel {
 public:
  PoisonedModel(std::unique_ptr<LanguageModel> model, int32_t poison, int32_t bomb)
      : model_(std::move(model)), poison_(poison), bomb_(bomb) {}

  const ModelDescription& description() const override { return model_->description(); }
  uint64_t weight_bytes() const override { return model_->weight_bytes(); }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override {
    TANDEM_ASSIGN_OR_RETURN(const LogitsView logits, model_->Forward(items));
    logits_.clear();
    const size_t vocabulary_size = description().vocabulary_size;
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
  std::unique_ptr<LanguageModel> model_;
  int32_t poison_;
  int32_t bomb_;
  std::vector<float> logits_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_WORKER_MODEL_DOUBLES_H_
