// A decoder with its weights, on whichever device: what workers hold and tests put doubles in place
// of. LanguageModel::Load makes the one on the CPU, CudaModel is the one on a GPU.
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
#include "common/model/kv/kv_cache.h"
#include "common/model/model_description.h"
#include "kernels/thread_pool.h"

namespace tandem {

// The rows that one slot adds to a forward pass.
struct ForwardItem {
  KvCache* cache = nullptr;  // rows go to cache->length() …, which grows by token_ids.size()
  std::span<const int32_t> token_ids;  // at least one, each in [0, V)
  // A tree: parents[i] < i is the row that row i follows, -1 stands for the cache's last row.
  // Empty: a chain. A row attends to the cache's rows and its own ancestors, in path order, at
  // position cache length + depth.
  std::span<const int32_t> parents;
  size_t num_logits = 0;  // the last num_logits rows get logits
};

// Logits of a pass: for each item in order, its num_logits rows. Valid until the next pass.
//   data [rows, vocabulary_size] f32, rows `stride` floats apart
struct LogitsView {
  const float* data = nullptr;
  size_t stride = 0;
  size_t rows = 0;
  const float* row(size_t i) const { return data + i * stride; }
};

// Path- and batch-invariant: a row's bits depend on its tokens before it alone, not on how they
// came into the cache (decode, verify, chunks of any size) or on what else is in the batch. Not
// thread-safe: one pass at a time.
class LanguageModel {
 public:
  // Loads a model that computes on the CPU. Reads config.json, maps model.safetensors or its
  // shards. Errors name file and field. `pool` must outlive the model.
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Load(const std::filesystem::path& folder,
                                                             ThreadPool* pool);
  virtual ~LanguageModel() = default;

  virtual const ModelDescription& description() const = 0;
  virtual uint64_t weight_bytes() const = 0;  // mapped from the files
  // See FingerprintModel. Empty: the model was not loaded from files.
  virtual std::string fingerprint() const { return {}; }

  // PRECOND: items are of different caches of a pool for this model; each has room. Any number of
  // rows: the rows of a long pass go through the layers in blocks. RESOURCE_EXHAUSTED when a cache
  // that has not reserved its pages finds none.
  virtual absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) = 0;

  // Grows while a pass computes, so that a busy worker is told from a hung one. By any thread, also
  // during a pass.
  virtual uint64_t progress() const { return 0; }
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_LANGUAGE_MODEL_H_
