// A layer of EAGLE on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_
#define TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cpu/cpu_layer.h"
#include "common/model/heads/eagle_weights.h"
#include "common/model/heads/level_tree.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/model_description.h"
#include "common/model/rope_table.h"
#include "common/model/scratch_rows.h"
#include "kernels/attention.h"
#include "kernels/thread_pool.h"

namespace tandem {

// The layer's keys and values of row j come from token j and the feature of row j - 1. They lie in
// row j of the target's pages, after those of the target's layers, and are computed when they are
// needed. Row 0 has no feature before it, and nobody sees it.
// (docs/adr/0029-rows-of-eagle-in-the-targets-pages.md)
class CpuEagle final : public SelfDrafter {
 public:
  // Loads the layer of a folder for a target. Errors name the file, and the field or the tensor
  // that does not fit. The other arguments must outlive the drafter.
  static absl::StatusOr<std::unique_ptr<CpuEagle>> Load(const std::filesystem::path& folder,
                                                        const ModelDescription& target,
                                                        const ModelWeights& target_weights,
                                                        ThreadPool* pool);

  const std::string& name() const override { return name_; }
  uint32_t max_depth() const override { return kMaxDepth; }
  uint64_t weight_bytes() const override { return checkpoint_->mapped_bytes(); }
  size_t num_kv_layers() const override { return 1; }
  size_t feature_floats() const override { return eagle_.hidden_size; }
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
    std::vector<float>* last = nullptr;  // out: the guessed feature of the last row
  };
  // A node whose row was computed. The first one is the text's end, which is no node.
  struct Grown {
    int32_t node;
    std::vector<float> feature;  // the guess of what follows
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

  CpuEagle(std::unique_ptr<Checkpoint> checkpoint, ModelDescription eagle, EagleWeights weights,
           size_t layer_index, double step_cost, ThreadPool* pool);

  // Computes rows, and keeps them in the caches.
  void Fill(std::vector<Gap> gaps);
  // Adds rows [gap.begin, end) to the pass.
  void AddRows(const Gap& gap, size_t end);
  void ClearRowZero(KvCache& cache);

  // A pass of the layer: Begin, then rows and their segments, then Run. The results are the rows of
  // layer_.hidden().
  void Begin();
  void AddRow(int32_t token_id, const float* feature, size_t position);
  void Run();

  // Returns the trees to grow, as deep as there is room for their rows. An order without room for
  // one row gets no tree.
  std::vector<Growth> BeginGrowth(std::span<GuessOrder> orders);
  // Adds the guesses that follow the newest rows.
  void LookAhead(std::vector<Growth>& growths);
  // Does so for some of the rows: a growth, and the index of its grown node.
  void LookAhead(std::span<const std::pair<Growth*, size_t>> looks);
  // Computes the likeliest nodes of a level. Returns false if there are none.
  bool Grow(std::vector<Growth>& growths, uint32_t level);

  std::string name_ = "eagle";
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelDescription eagle_;
  EagleWeights weights_;
  size_t layer_index_;  // the layer's place on the pages
  // Cost of a step in passes of the target. A node whose path is less likely is not grown.
  double step_cost_;
  std::atomic<uint64_t> progress_ = 0;
  ThreadPool& pool_;
  RopeTable rope_;
  CpuLayer layer_;

  // State of a pass.
  std::vector<int32_t> token_ids_;
  std::vector<const float*> features_;
  std::vector<int32_t> positions_;
  std::vector<AttentionArgs> segments_;
  ScratchRows input_;   // [rows, 2 * hidden]
  ScratchRows ends_;    // [rows, hidden] rows that the output product takes
  ScratchRows logits_;  // [rows, vocabulary]
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_
