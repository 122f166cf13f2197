// A drafter that guesses from what the target itself computed. It lives beside the target, on the
// same device.
#ifndef TANDEM_COMMON_MODEL_HEADS_SELF_DRAFTER_H_
#define TANDEM_COMMON_MODEL_HEADS_SELF_DRAFTER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/model/heads/trees/guess_transforms.h"
#include "common/model/heads/trees/guess_tree.h"
#include "common/model/kv/kv_cache.h"
#include "common/model/row_features.h"

namespace tandem {

// A text whose rows the target has computed. PRECOND: cache->length() == token_ids.size(), and the
// text has a token.
struct TextRows {
  KvCache* cache = nullptr;
  std::span<const int32_t> token_ids;
};

// The draft that one slot wants. The target has computed all its tokens but the newest one.
struct GuessOrder {
  size_t place = 0;           // where KeepFeature put the feature of the last computed token
  TextRows text = {};         // without the newest token
  int32_t next_token_id = 0;  // the newest token
  double temperature = 1;     // at which the target draws; 0: it is greedy
  // What the request does to the target's logits before the temperature; null: nothing.
  const GuessTransforms* transforms = nullptr;
  GuessLimits limits;
  GuessTree tree;  // out; empty: nothing can be guessed
};

// Returns the largest depth that an order allows. Heads that guess deeper need not be computed.
inline uint32_t DeepestOf(std::span<const GuessOrder> orders) {
  uint32_t depth = 0;
  for (const GuessOrder& order : orders) depth = std::max(depth, order.limits.depth);
  return depth;
}

// Returns how many guesses of each row an order looks at.
inline int32_t GuessesOf(const GuessOrder& order) {
  return order.transforms != nullptr ? kGuessesToTransform : kGuessesOfHead;
}
inline int32_t MostGuessesOf(std::span<const GuessOrder> orders) {
  int32_t most = kGuessesOfHead;
  for (const GuessOrder& order : orders) most = std::max(most, GuessesOf(order));
  return most;
}

// Not thread-safe.
class SelfDrafter {
 public:
  virtual ~SelfDrafter() = default;

  // The drafter's name in the API: "medusa", "blockwise", "eagle", "layer_skip" or "pass".
  virtual const std::string& name() const = 0;
  virtual uint32_t max_depth() const = 0;     // tokens on its longest path
  virtual uint64_t weight_bytes() const = 0;  // mapped from its own files

  // Keeps the feature of a row of logits of the target's last pass, until another one is kept at
  // the same place. The feature is the row that the target's output product takes: the last hidden
  // state after the final norm. PRECOND: `place` is less than the number of slots.
  virtual void KeepFeature(size_t place, size_t logits_row) = 0;

  // What the drafter keeps of each row on the target's pages: keys and values of so many layers
  // after those of the target, and a feature, which the target's passes write.
  virtual size_t num_kv_layers() const { return 0; }
  virtual RowFeatures row_features() const { return {}; }
  // Computes what proposals need of rows that are long there, such as a prompt's, up to a limit for
  // one call. The errors are those of Propose. PRECOND: the caches differ, and their rows are
  // committed.
  virtual absl::Status CatchUp(std::span<const TextRows> /*texts*/) { return absl::OkStatus(); }

  // Guesses what follows. An order's tree depends on its feature, its text, its newest token, its
  // temperature, its transforms and its limits alone, but is smaller where its cache has little
  // room, and empty where CatchUp did not come to its end or the cache lacks features.
  // FAILED_PRECONDITION: a file of the heads is damaged. Other errors come from the device.
  virtual absl::Status Propose(std::span<GuessOrder> orders) = 0;

  // Grows while the drafter computes. Any thread may call this function.
  virtual uint64_t progress() const { return 0; }
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_SELF_DRAFTER_H_
