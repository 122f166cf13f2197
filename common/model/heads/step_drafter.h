// Drafters that guess step by step (EAGLE, layer skip): which rows are computed, how trees grow.
#ifndef TANDEM_COMMON_MODEL_HEADS_STEP_DRAFTER_H_
#define TANDEM_COMMON_MODEL_HEADS_STEP_DRAFTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/heads/step_device.h"
#include "common/model/heads/trees/level_tree.h"
#include "common/model/row_features.h"

namespace tandem {

// What the control needs to know of a device.
struct StepTraits {
  std::string name;  // the drafter's, in the API
  // The device has keys and values of its own for each row of a text. Otherwise, the target's are
  // enough.
  bool keeps_rows = false;
  RowFeatures features;  // what it reads of the target's rows
  // [i]: the target's id of the device's token i; empty: the same ids.
  std::vector<int32_t> token_map;
  // Cost of a step in passes of the target. A node whose path is less likely is not grown.
  double step_cost = 0;
};

// A tree grows level by level, as in EAGLE-2 (Li et al. 2024, arXiv 2406.16858). Rows of the text
// are computed when a proposal needs them, and the rows of a proposal are given back.
// (docs/adr/0029-rows-of-eagle-in-the-targets-pages.md)
class StepDrafter final : public SelfDrafter {
 public:
  StepDrafter(std::unique_ptr<StepDevice> device, StepTraits traits)
      : device_(std::move(device)), traits_(std::move(traits)) {}

  const std::string& name() const override { return traits_.name; }
  uint32_t max_depth() const override { return kMaxDepth; }
  uint64_t weight_bytes() const override { return device_->weight_bytes(); }
  size_t num_kv_layers() const override { return traits_.keeps_rows ? 1 : 0; }
  RowFeatures row_features() const override { return traits_.features; }
  void KeepFeature(size_t /*place*/, size_t /*logits_row*/) override {}  // the pages have it
  absl::Status CatchUp(std::span<const TextRows> texts) override;
  absl::Status Propose(std::span<GuessOrder> orders) override;
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kMaxDepth = 8;
  // Rows that one call of CatchUp computes. Texts that still lack more than a page get no tree.
  static constexpr size_t kMaxCatchUpRows = 4096;

  // Rows [begin, end) of a text that the device has not computed.
  struct Gap {
    TextRows text;
    int32_t next_token_id;  // token text.token_ids.size()
    size_t begin;
    size_t end;
    int32_t kept_as = -1;  // where the guess of the last row is kept
  };
  // A node whose row was computed. The first one is the text's end, which is no node.
  struct Grown {
    int32_t node;
    int32_t guess;  // the kept guess of what follows
  };
  // The tree of an order, while it grows.
  struct Growth {
    GuessOrder* order;
    size_t width;  // nodes of a level that are grown
    uint32_t depth;
    LevelTree tree;
    std::vector<Grown> grown;
    std::vector<int32_t> parents;  // rows of the tree: that of each node's parent, or -1
    size_t num_looked_at = 0;      // so many of `grown` have their children in the tree
  };

  // Returns how many rows of a text the device has.
  size_t NumRows(const TextRows& text) const {
    return traits_.keeps_rows ? text.cache->NumDrafterRows() : text.token_ids.size();
  }
  // Returns whether the target's passes have kept the features that the device reads.
  bool HasFeatures(const TextRows& text) const {
    return traits_.features.parts.empty() || text.cache->has_features();
  }
  // Computes rows, and keeps those of the text in the caches.
  absl::Status Fill(std::vector<Gap> gaps);
  // Adds rows [gap.begin, end) to the pass.
  void AddRows(const Gap& gap, size_t end);
  absl::Status Run();

  // Begins with the trees of the first orders, as many as there is room for their guesses, and
  // takes these orders out of `orders`. A tree is as deep as there is room for its rows. An order
  // without room for one row gets no tree.
  std::vector<Growth> BeginGrowth(std::span<GuessOrder>* orders);
  // Grows the trees and puts them into their orders.
  absl::Status Grow(std::vector<Growth>& growths);
  absl::Status GrowTrees(std::vector<Growth>& growths);
  // Adds the guesses that follow the newest rows.
  absl::Status LookAhead(std::vector<Growth>& growths);
  // Computes the likeliest nodes of a level. Returns false if there are none.
  absl::StatusOr<bool> GrowLevel(std::vector<Growth>& growths, uint32_t level);

  std::unique_ptr<StepDevice> device_;
  StepTraits traits_;
  std::atomic<uint64_t> progress_ = 0;
  StepPass pass_;
  size_t num_guesses_ = 0;  // kept so far
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_STEP_DRAFTER_H_
