#include "common/model/cuda/pass_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/status.h"

namespace tandem {

size_t PassGraphs::RoundBlocks(size_t blocks, size_t most) {
  return std::min(std::bit_ceil(blocks), most);
}

absl::Status PassGraphs::Run(const PassShape& shape, const DeviceStream& stream,
                             absl::FunctionRef<absl::Status()> enqueue) {
  if (is_off_) return enqueue();
  const auto [found, is_new] = entries_.try_emplace(shape);
  Entry& entry = found->second;
  entry.last_used = ++num_passes_;
  if (is_new) {
    MakeRoom();
    return enqueue();
  }
  if (!entry.graph.has_value()) {
    absl::StatusOr<DeviceGraph> graph = DeviceGraph::Record(stream, enqueue);
    if (!graph.ok()) return RunByItself(graph.status(), enqueue);
    entry.graph = *std::move(graph);
    ++num_recorded_;
  }
  // A graph that was not started has done nothing.
  if (absl::Status status = entry.graph->Start(stream); !status.ok()) {
    return RunByItself(status, enqueue);
  }
  ++num_started_;
  return absl::OkStatus();
}

absl::Status PassGraphs::RunByItself(const absl::Status& why,
                                     absl::FunctionRef<absl::Status()> enqueue) {
  // If the kernels fail without a graph too, the graph is not the reason.
  TANDEM_RETURN_IF_ERROR(enqueue());
  entries_.clear();
  is_off_ = true;
  if (on_turned_off_) on_turned_off_(why);
  return absl::OkStatus();
}

void PassGraphs::MakeRoom() {
  if (entries_.size() <= kMaxGraphs) return;
  entries_.erase(std::min_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; }));
}

}  // namespace tandem
