// CUDA graphs of passes with few rows. Each shape that comes again has one graph.
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
  // Largest number of rows of a pass. Arithmetic, not launches, limits larger passes.
  static constexpr size_t kMaxRows = 64;
  // Largest number of graphs. The driver takes memory for each graph. The graph of the shape that
  // was not used for the longest time makes room.
  static constexpr size_t kMaxGraphs = 64;

  // Rounds `blocks` up to a power of two, at most `most`, so that a growing context changes the
  // shape seldom. PRECOND: blocks <= most.
  static size_t RoundBlocks(size_t blocks, size_t most);

  // `on_turned_off`, if set, is called at most once, with the reason why graphs are not used any
  // more.
  explicit PassGraphs(std::function<void(const absl::Status& why)> on_turned_off = {})
      : on_turned_off_(std::move(on_turned_off)) {}

  // Puts the work of `enqueue` on `stream`. The first pass of a shape calls `enqueue`, which also
  // loads the kernels. Later passes start a graph. If a graph cannot be recorded, made or started,
  // because the driver has no memory for it or refuses a call in it, this pass and all later passes
  // call `enqueue`. All errors come from a call of `enqueue` outside a recording.
  absl::Status Run(const PassShape& shape, const DeviceStream& stream,
                   absl::FunctionRef<absl::Status()> enqueue);

  // Passes enqueue other work from now on. PRECOND: no graph is at work.
  void Forget() { entries_.clear(); }

  uint64_t num_recorded() const { return num_recorded_; }
  uint64_t num_started() const { return num_started_; }

 private:
  struct Entry {
    std::optional<DeviceGraph> graph;  // empty if the shape came only once
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
