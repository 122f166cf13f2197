// A decoder with its weights, on any device. Workers hold one, and tests replace it with doubles.
// LanguageModel::Load makes the one on the CPU, and CudaModel is the one on a GPU.
#ifndef TANDEM_COMMON_MODEL_LANGUAGE_MODEL_H_
#define TANDEM_COMMON_MODEL_LANGUAGE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/drafter_room.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/kv/kv_cache.h"
#include "common/model/model_description.h"
#include "kernels/thread_pool.h"

namespace tandem {

// The rows that one slot adds to a forward pass.
struct ForwardItem {
  KvCache* cache = nullptr;  // rows follow the cache's rows; its length grows by token_ids.size()
  std::span<const int32_t> token_ids;  // at least one id, each in [0, V)
  // The last parents.size() rows are a tree that follows the other rows: parents[i] < i is the row
  // of the tree that row i of the tree follows, and -1 stands for the row before the tree. Empty:
  // all rows are a chain. A row of the tree attends to all rows before the tree and to its own
  // ancestors in path order. Its position is that of the tree's beginning + its depth.
  std::span<const int32_t> parents;
  size_t tree_begin() const { return token_ids.size() - parents.size(); }
  size_t num_logits = 0;  // the last num_logits rows get logits
};

// Logits of a pass: the num_logits rows of each item, in the order of the items. Valid until the
// next pass.
//   data [rows, vocabulary_size] f32, rows `stride` floats apart
struct LogitsView {
  const float* data = nullptr;
  size_t stride = 0;
  size_t rows = 0;
  const float* row(size_t i) const { return data + i * stride; }
};

// A model is path- and batch-invariant. A row's bits depend only on its own token and the tokens
// before it. They do not depend on how those tokens came into the cache (decode, verify, chunks of
// any size), or on the rest of the batch. Not thread-safe: one pass runs at a time.
class LanguageModel {
 public:
  // Loads a model that computes on the CPU. Reads config.json, and maps model.safetensors or its
  // shards. `heads` is a folder of heads for the model; empty: it has none. Errors name the file
  // and the field. `pool` must outlive the model.
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Load(
      const std::filesystem::path& folder, ThreadPool* pool,
      const std::filesystem::path& heads = {});
  virtual ~LanguageModel() = default;

  virtual const ModelDescription& description() const = 0;
  virtual uint64_t weight_bytes() const = 0;  // mapped from the files
  // Returns the result of FingerprintModel. Empty if the model was not loaded from files.
  virtual std::string fingerprint() const { return {}; }

  // Takes the rows of all items through the model. A pass may have any number of rows, because the
  // rows of a long pass go through the layers in blocks. RESOURCE_EXHAUSTED: a cache that has not
  // reserved its pages finds none.
  // PRECOND: the items have different caches of one pool for this model, and each cache has room.
  virtual absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) = 0;

  // Returns the heads that draft for this model, or null.
  virtual SelfDrafter* self_drafter() { return nullptr; }
  // Loads the heads of a folder for this model. They draft after AdoptHeads. Any thread may call
  // this function, also during a pass. Errors name the file, and the field or the tensor that does
  // not fit. FAILED_PRECONDITION: this model keeps the heads that it was loaded with.
  virtual absl::StatusOr<std::unique_ptr<SelfDrafter>> LoadHeads(
      const std::filesystem::path& folder);
  // Replaces the heads. Null: the model has none from now on. What passes store of each row follows
  // the last heads that read it. Errors come from the device, and change nothing. PRECOND:
  // LoadHeads of this model returned the heads, and kv_shape has room for what they keep.
  virtual absl::Status AdoptHeads(std::unique_ptr<SelfDrafter> /*heads*/) {
    return absl::OkStatus();
  }
  // Returns what passes store of each row on its page.
  virtual RowFeatures stored_features() const { return {}; }

  // Has pages hold what such heads keep too, so that the heads can be adopted later. To be called
  // before kv_shape.
  void ReserveFor(const DrafterRoom& room) { reserved_.Cover(room); }
  // Returns what pages hold: the model's keys and values, and what heads keep.
  KvShape kv_shape() {
    DrafterRoom room = reserved_;
    if (const SelfDrafter* drafter = self_drafter(); drafter != nullptr) {
      room.Cover(DrafterRoom::Of(*drafter));
    }
    KvShape shape(description());
    shape.num_layers += room.kv_layers;
    shape.feature_floats = room.feature_parts * description().hidden_size;
    return shape;
  }

  // Grows while a pass computes, so that a busy worker can be told from a hung one. Any thread may
  // call this function, also during a pass.
  virtual uint64_t progress() const { return 0; }

 private:
  DrafterRoom reserved_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_LANGUAGE_MODEL_H_
