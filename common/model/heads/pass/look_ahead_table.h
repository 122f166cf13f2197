// Look-ahead embeddings of a target, as their folder holds them.
#ifndef TANDEM_COMMON_MODEL_HEADS_PASS_LOOK_AHEAD_TABLE_H_
#define TANDEM_COMMON_MODEL_HEADS_PASS_LOOK_AHEAD_TABLE_H_

#include <cstddef>
#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"

namespace tandem {

// A row that enters the target with embedding i = 0, 1, … stands for the token i + 1 places after
// the newest one, and guesses the token after that (PaSS: Monea et al. 2023, arXiv 2311.13581).
struct LookAheadTable {
  std::unique_ptr<Checkpoint> checkpoint;
  Linear embeddings;  // [rows, hidden] in `checkpoint`; no product is made with it

  static constexpr size_t kMaxRows = 15;

  size_t num_rows() const { return embeddings.out_features; }

  // Reads `num_lookahead_tokens` and `hidden_size` (the target's) of config.json, and the tensor
  // lookahead.weight of model.safetensors. Errors name the file, and the field or the tensor that
  // does not fit.
  static absl::StatusOr<LookAheadTable> Open(const std::filesystem::path& folder,
                                             const ModelDescription& target);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_PASS_LOOK_AHEAD_TABLE_H_
