// Draws tokens from a model's logits without leaving the device. Tells the kernels of
// kernels/sampling about a batch, and holds the memory in which they work.
#ifndef TANDEM_COMMON_MODEL_CUDA_DEVICE_SAMPLER_H_
#define TANDEM_COMMON_MODEL_CUDA_DEVICE_SAMPLER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/memory_taker.h"
#include "common/status.h"
#include "kernels/device/device_stream.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {

// Logits in device memory: the num_logits rows of each item of a pass, in the order of the items.
// Valid on the model's stream until the next pass, or until the model's heads propose.
//   data  [rows, vocabulary_size]  f32, rows `stride` floats apart
struct DeviceLogits {
  float* data = nullptr;
  size_t stride = 0;
  size_t rows = 0;
};

// Handles one batch after the other. The calls for a batch are Begin; then AddContext, AddRows and
// Put; then Send; then Draw and the owner's own kernels. Used by the thread that runs the model.
class DeviceSampler {
 public:
  static constexpr size_t kMaxRows = 256;    // largest number of rows of logits in a batch
  static constexpr size_t kMaxDrafts = 16;   // largest number of drafts of one slot
  static constexpr size_t kMaxSiblings = 3;  // largest number of siblings of a draft

  struct Sizes {
    size_t vocabulary_size = 0;
    size_t logits_stride = 0;
    size_t max_contexts = 0;  // largest number of slots in a batch
    size_t max_context = 0;   // largest number of tokens of a slot
    bool judges = false;      // draft rows, verdicts and reports have room too
  };

  // Device memory. V stands for vocabulary_size.
  struct Memory {
    float* values = nullptr;        // [kMaxRows, logits_stride] adjusted logits, then log-probs
    int32_t* not_finite = nullptr;  // [kMaxRows]
    int32_t* token_ids = nullptr;   // [kMaxRows] what DrawTokens drew
    uint32_t* counts = nullptr;     // [max_contexts, V]
    std::byte* staged = nullptr;    // values that the host sent
    int32_t* fed = nullptr;         // [kMaxRows]             see KeepDrafts
    int32_t* drafts = nullptr;      // [kMaxRows, kMaxDrafts] see KeepDrafts
    // [1 + kMaxSiblings, kMaxRows, kMaxDrafts] see KeepDrafts: of the tokens, of their first
    // siblings, and so on
    int32_t* record = nullptr;
    float* draft_rows = nullptr;        // [kMaxRows, V] q, if it comes from the host
    DeviceVerdict* verdicts = nullptr;  // [kMaxRows]
    DeviceReport* reports = nullptr;    // [kMaxRows]
  };

  // The state of a slot before the first token that is to be drawn.
  struct Context {
    const SamplingParams* params = nullptr;
    const TokenCounts* counts = nullptr;  // counts of all tokens before the first drawn token
    int32_t num_output_tokens = 0;        // number of output tokens among the tokens before it
    uint64_t position = 0;                // position of the first drawn token
    // [largest num_earlier of its rows that have no list of their own]  in device memory: the first
    // tokens of the block
    const int32_t* drafts = nullptr;
    uint8_t drafter = 0;  // as in DrawKey; 0 for draws of the target
  };
  // The row of logits after `num_earlier` draft tokens.
  struct Row {
    size_t context = 0;
    int32_t num_earlier = 0;
    RowDraw how = RowDraw::kNone;
    // [num_earlier]  in device memory: the tokens on the path of a row of a tree. Null: the tokens
    // are the first of the context's drafts, or the request has no penalties
    const int32_t* earlier = nullptr;
    uint8_t sibling = 0;  // number of the token among those that are drawn from this row
  };
  struct Rows {
    size_t count = 0;
    const RowAdjustment* adjustments = nullptr;
    const RowSampling* sampling = nullptr;
    const RowToDraw* draws = nullptr;
    bool any_sampled = false;  // log-probs are wanted, not only adjusted logits
    bool any_drawn = false;
  };

  DeviceSampler() = default;
  explicit DeviceSampler(const Sizes& sizes) : sizes_(sizes) {}

  absl::Status LayOut(const MemoryTaker& take);
  // Called once, after the memory was taken. `stream` must outlive the sampler.
  absl::Status Start(const DeviceStream* stream);

  const Memory& memory() const { return memory_; }
  const Sizes& sizes() const { return sizes_; }

  // Returns how a token of this request is drawn.
  static RowDraw DrawOf(const SamplingParams& params) {
    if (params.greedy()) return RowDraw::kGreedy;
    return params.reproducible ? RowDraw::kCoupled : RowDraw::kPlain;
  }

  // Waits until the device has fetched the values of the last batch.
  absl::Status Begin();
  // AddContext, AddRows and Put copy the memory that their pointers name. The addresses that they
  // return are in device memory, which Send fills. RESOURCE_EXHAUSTED: the batch is too large for
  // the memory.
  absl::StatusOr<size_t> AddContext(const Context& context);
  absl::StatusOr<Rows> AddRows(std::span<const Row> rows);
  template <typename T>
  absl::StatusOr<const T*> Put(std::span<const T> values) {
    TANDEM_ASSIGN_OR_RETURN(const size_t offset, Stage(values.data(), values.size_bytes()));
    return reinterpret_cast<const T*>(memory_.staged + offset);
  }
  // Enqueues the copy of all added values, and counts the contexts' tokens.
  absl::Status Send();

  // Enqueues the kernels that fill memory().values, not_finite and token_ids for the rows.
  absl::Status Draw(const Rows& rows, const DeviceLogits& logits) const;
  // The same for siblings of the tokens that were drawn last, from the same rows. `rows` has a row
  // for each of those of Draw.
  absl::Status DrawSiblings(const Rows& rows, size_t stride) const;

 private:
  struct KnownContext {
    Context context;
    RowAdjustment adjustment;
    int32_t num_held_back = 0;
  };
  // Tokens that must be added to `counts`.
  struct CountList {
    uint32_t* counts = nullptr;
    const int32_t* token_ids = nullptr;
    size_t count = 0;
    bool is_output = false;
  };

  // Room for the tokens of all slots, and for the logit biases and held-back ids of requests.
  size_t staging_bytes() const {
    return (size_t{4} << 20) + sizes_.max_contexts * sizes_.max_context * sizeof(int32_t);
  }
  // Copies `data` to the staging memory. Returns the offset of the copy.
  absl::StatusOr<size_t> Stage(const void* data, size_t bytes);
  absl::Status DrawTokensOf(const Rows& rows, size_t stride) const;
  absl::Status CountContext(const TokenCounts& counts, uint32_t* device_counts);

  Sizes sizes_;
  Memory memory_;
  const DeviceStream* stream_ = nullptr;
  PinnedMemory staging_;
  DeviceEvent fetched_;
  size_t num_staged_ = 0;
  std::vector<KnownContext> contexts_;
  std::vector<CountList> to_count_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_DEVICE_SAMPLER_H_
