// EAGLE as a drafter: which rows its layer computes, and how its trees grow.
#ifndef TANDEM_COMMON_MODEL_HEADS_EAGLE_H_
#define TANDEM_COMMON_MODEL_HEADS_EAGLE_H_

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
#include "common/model/heads/eagle_device.h"
#include "common/model/heads/level_tree.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/row_features.h"

namespace tandem {

// What the control needs to know of a layer.
struct EagleTraits {
  RowFeatures features;
  // [i]: the target's id of the layer's token i; empty: the same ids.
  std::vector<int32_t> token_map;
  // Cost of a pass of the layer in passes of the target. A node whose path is less likely is not
  // grown.
  double step_cost = 0;
};

// Rows of the text are computed when a proposal needs them, and the rows of a proposal are given
// back. (docs/adr/0029-rows-of-eagle-in-the-targets-pages.md)
class Eagle final : public SelfDrafter {
 public:
  Eagle(std::unique_ptr<EagleDevice> device, EagleTraits traits)
      : device_(std::move(device)), traits_(std::move(traits)) {}

  const std::string& name() const override { return name_; }
  uint32_t max_depth() const override { return kMaxDepth; }
  uint64_t weight_bytes() const override { return device_->weight_bytes(); }
  size_t num_kv_layers() const override { return 1; }
  RowFeatures row_features() const override { return traits_.features; }
  void KeepFeature(size_t /*place*/, size_t /*logits_row*/) override {}  // the pages have it
  absl::Status CatchUp(std::span<const TextRows> texts) override;
  absl::Status Propose(std::span<GuessOrder> orders) override;
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kMaxDepth = 8;
  // Rows that one call of CatchUp computes. Texts that still lack more than a page get no tree.
  static constexpr size_t kMaxCatchUpRows = 4096;

  // Rows [begin, end) of a text that the layer has not computed.
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

  // Computes rows, and keeps them in the caches.
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

  std::string name_ = "eagle";
  std::unique_ptr<EagleDevice> device_;
  EagleTraits traits_;
  std::atomic<uint64_t> progress_ = 0;
  EaglePass pass_;
  size_t num_guesses_ = 0;  // kept so far
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_EAGLE_H_
