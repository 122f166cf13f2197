#include "common/model/forward_plan.h"

#include <algorithm>
#include <string>

#include "common/status.h"

namespace tandem {

absl::Status ForwardPlan::Make(std::span<const ForwardItem> items, size_t vocabulary_size) {
  items_ = items;
  token_ids_.clear();
  positions_.clear();
  wants_logits_.clear();
  num_logits_ = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(AddItem(items[i], i, vocabulary_size));
  }
  for (const ForwardItem& item : items) {
    TANDEM_RETURN_IF_ERROR(item.cache->Reserve(item.token_ids.size()));
  }
  return absl::OkStatus();
}

size_t ForwardPlan::NumLogits(size_t begin, size_t end) const {
  const auto rows = wants_logits_.begin();
  return static_cast<size_t>(std::count(rows + static_cast<ptrdiff_t>(begin),
                                        rows + static_cast<ptrdiff_t>(end), uint8_t{1}));
}

int32_t ForwardPlan::last_position() const {
  int32_t last = 0;
  for (const int32_t position : positions_) last = std::max(last, position);
  return last;
}

absl::Status ForwardPlan::AddItem(const ForwardItem& item, size_t index, size_t vocabulary_size) {
  const auto refuse = [&](const std::string& what) {
    return InvalidArgument("forward pass: item " + std::to_string(index) + ": " + what);
  };
  const size_t rows = item.token_ids.size();
  if (item.cache == nullptr || rows == 0) return refuse("has no cache or no tokens");
  if (rows > item.cache->capacity() - item.cache->length()) {
    return refuse("adds " + std::to_string(rows) + " rows to " +
                  std::to_string(item.cache->length()) + " of " +
                  std::to_string(item.cache->capacity()));
  }
  if (item.num_logits > rows) {
    return refuse("wants logits of " + std::to_string(item.num_logits) + " of its " +
                  std::to_string(rows) + " rows");
  }
  if (item.parents.size() > rows) {
    return refuse("has " + std::to_string(item.parents.size()) + " parents for " +
                  std::to_string(rows) + " rows");
  }
  const size_t first = positions_.size();
  const size_t tree_begin = item.tree_begin();
  for (size_t row = 0; row < rows; ++row) {
    const int32_t id = item.token_ids[row];
    if (id < 0 || static_cast<size_t>(id) >= vocabulary_size) {
      return refuse("token id " + std::to_string(id) + " is not in [0, " +
                    std::to_string(vocabulary_size) + ")");
    }
    auto position = static_cast<int32_t>(item.cache->length() + std::min(row, tree_begin));
    if (row >= tree_begin) {
      const size_t node = row - tree_begin;
      const int32_t parent = item.parents[node];
      if (parent < -1 || parent >= static_cast<int32_t>(node)) {
        return refuse("row " + std::to_string(node) + " of its tree has parent " +
                      std::to_string(parent) + " (want an earlier row of the tree or -1)");
      }
      if (parent >= 0) {
        position = positions_[first + tree_begin + static_cast<size_t>(parent)] + 1;
      }
    }
    token_ids_.push_back(id);
    positions_.push_back(position);
    wants_logits_.push_back(row + item.num_logits >= rows ? 1 : 0);
  }
  num_logits_ += item.num_logits;
  return absl::OkStatus();
}

void ForwardPlan::FindSegments(size_t begin, size_t end, std::vector<PlanSegment>* segments) const {
  segments->clear();
  size_t item_begin = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t item_end = item_begin + items_[i].token_ids.size();
    const size_t first = std::max(begin, item_begin);
    const size_t last = std::min(end, item_end);
    if (first < last) {
      segments->push_back({.item = i,
                           .first_row = first - item_begin,
                           .block_row = first - begin,
                           .rows = last - first});
    }
    item_begin = item_end;
  }
}

}  // namespace tandem
