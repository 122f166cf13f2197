#include "common/model/decoder.h"

#include "common/status.h"

namespace tandem {

absl::Status Decoder::Run(std::span<const ForwardItem> items) {
  TANDEM_RETURN_IF_ERROR(plan_.Make(items, model_.vocabulary_size));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<size_t> ends, backend_.BeginPass(plan_));
  RowBlock block;
  for (const size_t end : ends) {
    block = {.begin = block.end,
             .end = end,
             .num_logits = plan_.NumLogits(block.end, end),
             .logits_row = block.logits_row + block.num_logits};
    TANDEM_RETURN_IF_ERROR(backend_.Prepare(block));
    TANDEM_RETURN_IF_ERROR(backend_.Execute([&] { return Walk(block); }));
  }
  for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
  return absl::OkStatus();
}

absl::Status Decoder::Walk(const RowBlock& block) {
  const bool ends_early = !backend_.HasFeatures(model_.num_layers);
  TANDEM_RETURN_IF_ERROR(backend_.Embed());
  for (size_t layer = 0; layer < model_.num_layers; ++layer) {
    if (backend_.HasFeatures(layer)) TANDEM_RETURN_IF_ERROR(backend_.StoreFeatures(layer));
    TANDEM_RETURN_IF_ERROR(backend_.Qkv(layer));
    TANDEM_RETURN_IF_ERROR(backend_.Attend(layer));
    if (ends_early && layer + 1 == model_.num_layers) {
      // All keys, values and features are stored. Rows without logits contribute nothing more.
      TANDEM_ASSIGN_OR_RETURN(const bool goes_on, KeepRows(block));
      if (!goes_on) return absl::OkStatus();
    }
    TANDEM_RETURN_IF_ERROR(backend_.Output(layer));
    TANDEM_RETURN_IF_ERROR(backend_.Mlp(layer));
  }
  if (!ends_early) {
    TANDEM_RETURN_IF_ERROR(backend_.StoreFeatures(model_.num_layers));
    TANDEM_ASSIGN_OR_RETURN(const bool goes_on, KeepRows(block));
    if (!goes_on) return absl::OkStatus();
  }
  return backend_.Logits();
}

absl::StatusOr<bool> Decoder::KeepRows(const RowBlock& block) {
  if (block.num_logits == 0) return false;
  TANDEM_RETURN_IF_ERROR(backend_.KeepRows());
  return true;
}

}  // namespace tandem
