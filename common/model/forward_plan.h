// The rows of a forward pass, checked and laid out one after the other. A pass begins with this
// plan on every device.
#ifndef TANDEM_COMMON_MODEL_FORWARD_PLAN_H_
#define TANDEM_COMMON_MODEL_FORWARD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/language_model.h"

namespace tandem {

// The rows that one item adds to a block. The rows of a block go through the layers together.
struct PlanSegment {
  size_t item = 0;
  size_t first_row = 0;  // index of the segment's first row in the item
  size_t block_row = 0;  // index of the segment's first row in the block
  size_t rows = 0;
};

class ForwardPlan {
 public:
  // Lays out `items` and reserves pages in their caches. No cache row changes. `items` must outlive
  // the use of the plan. INVALID_ARGUMENT names the item. RESOURCE_EXHAUSTED: no page is left for
  // an item.
  absl::Status Make(std::span<const ForwardItem> items, size_t vocabulary_size);

  std::span<const ForwardItem> items() const { return items_; }
  size_t rows() const { return token_ids_.size(); }
  size_t num_logits() const { return num_logits_; }
  // One entry for each row.
  const std::vector<int32_t>& token_ids() const { return token_ids_; }
  const std::vector<int32_t>& positions() const { return positions_; }
  bool wants_logits(size_t row) const { return wants_logits_[row] != 0; }
  // Returns the number of rows in [begin, end) that want logits.
  size_t NumLogits(size_t begin, size_t end) const;
  int32_t last_position() const;

  // Sets `segments` to the rows [begin, end), one segment for each item.
  void FindSegments(size_t begin, size_t end, std::vector<PlanSegment>* segments) const;

 private:
  absl::Status AddItem(const ForwardItem& item, size_t index, size_t vocabulary_size);

  std::span<const ForwardItem> items_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<uint8_t> wants_logits_;
  size_t num_logits_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_FORWARD_PLAN_H_
