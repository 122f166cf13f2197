// What a drafter that guesses step by step computes on one device.
#ifndef TANDEM_COMMON_MODEL_HEADS_STEP_DEVICE_H_
#define TANDEM_COMMON_MODEL_HEADS_STEP_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/heads/trees/guess_tree.h"
#include "common/model/kv/kv_cache.h"

namespace tandem {

// Rows that go through the layers of a step together. All of them read kept guesses, or none does.
struct StepPass {
  struct Row {
    int32_t token_id;
    size_t position;
    // The kept guess that the row reads; -1: what the target computed of the row before it, on the
    // sequence's pages.
    int32_t guess;
    // Where the guess that the row makes is kept; -1: nowhere.
    int32_t kept_as;
    // The row enters with this look-ahead embedding of the device in the place of its token's.
    // Those of a text are rows side by side, with the embeddings 0, 1, … . -1: it has a token.
    int32_t look_ahead = -1;
  };
  // The rows of one text lie together. They go to the cache rows from `length` + `first_row` on.
  struct Sequence {
    KvCache* cache;
    size_t length;                     // rows of the cache before the first row that is added
    size_t first_row;                  // index of the pass's first row among those that are added
    size_t rows;                       // in this pass
    std::span<const int32_t> parents;  // those of all rows that are added; empty: a chain
  };

  std::vector<Row> rows;
  std::vector<Sequence> sequences;
};

// A row guesses the token after its own. Errors come from the device, or say that a file is
// damaged.
class StepDevice {
 public:
  static constexpr size_t kMaxRows = 512;      // rows of a pass
  static constexpr size_t kMaxGuesses = 2048;  // guesses that are kept at once

  virtual ~StepDevice() = default;

  virtual uint64_t weight_bytes() const = 0;
  // Says whether the weights can still be read.
  virtual absl::Status Check() const = 0;
  // Makes the own keys and values of row 0 zeros, for a device that keeps rows.
  virtual absl::Status ClearRowZero(KvCache& /*cache*/) { return absl::OkStatus(); }
  // Computes rows, writes their keys and values to the pages, and keeps guesses. PRECOND: there
  // are at most kMaxRows of them, each `kept_as` is less than kMaxGuesses, and the caches have
  // reserved their rows.
  virtual absl::Status Run(const StepPass& pass) = 0;
  // Returns the `count` likeliest tokens after each of these kept guesses, as LikeliestGuesses
  // does. PRECOND: 1 <= count <= kGuessesToTransform.
  virtual absl::StatusOr<std::vector<std::vector<Guess>>> LookAhead(
      std::span<const int32_t> guesses, int32_t count) = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_STEP_DEVICE_H_
