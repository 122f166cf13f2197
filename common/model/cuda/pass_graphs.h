// Passes of few rows as graphs: one for each shape that comes again.
#ifndef TANDEM_COMMON_MODEL_CUDA_PASS_GRAPHS_H_
#define TANDEM_COMMON_MODEL_CUDA_PASS_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/cuda/pass_shape.h"
#include "kernels/device/device_graph.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Used by the thread that enqueues passes.
class PassGraphs {
 public:
  static constexpr size_t kMaxRows = 64;  // of a pass: more are bound by arithmetic, not launches
  // The driver takes memory for each: the shape that was not used for longest makes room.
  static constexpr size_t kMaxGraphs = 64;

  // A power of two, so that a growing context changes the shape seldom; at most `most`.
  // PRECOND: blocks <= most.
  static size_t RoundBlocks(size_t blocks, size_t most);

  // `on_turned_off`, where there is one, is told why graphs are not used any more: once at most.
  explicit PassGraphs(std::function<void(const absl::Status& why)> on_turned_off = {})
      : on_turned_off_(std::move(on_turned_off)) {}

  // Puts on `stream` what `enqueue` does: by itself the first time, which also loads the kernels,
  // from then on as a graph. Where a graph cannot be recorded, made or started (the driver has no
  // memory for it, or refuses a call in it), by itself for ever. An error is that of `enqueue` by
  // itself.
  absl::Status Run(const PassShape& shape, const DeviceStream& stream,
                   absl::FunctionRef<absl::Status()> enqueue);

  uint64_t num_recorded() const { return num_recorded_; }
  uint64_t num_started() const { return num_started_; }

 private:
  struct Entry {
    std::optional<DeviceGraph> graph;  // none yet: the shape came once
    uint64_t last_used = 0;
  };
  void MakeRoom();
  absl::Status RunByItself(const absl::Status& why, absl::FunctionRef<absl::Status()> enqueue);

  std::function<void(const absl::Status& why)> on_turned_off_;
  std::map<PassShape, Entry> entries_;
  uint64_t num_passes_ = 0;
  uint64_t num_recorded_ = 0;
  uint64_t num_started_ = 0;
  bool is_off_ = false;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_PASS_GRAPHS_H_
