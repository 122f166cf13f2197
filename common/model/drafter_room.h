// What pages of the KV cache hold for a drafter beside the model, besides the model's own rows.
#ifndef TANDEM_COMMON_MODEL_DRAFTER_ROOM_H_
#define TANDEM_COMMON_MODEL_DRAFTER_ROOM_H_

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "absl/status/statusor.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/model_description.h"

namespace tandem {

struct DrafterRoom {
  size_t kv_layers = 0;      // layers whose keys and values lie after those of the model
  size_t feature_parts = 0;  // states of the model in the feature of a row, [hidden] f32 each

  static DrafterRoom Of(const SelfDrafter& drafter) {
    return {drafter.num_kv_layers(), drafter.row_features().parts.size()};
  }
  // Reads what the heads of a folder need. Errors are those of KindOfHeads, and for a layer of
  // EAGLE those of EagleDescription. Other misfits show only when the heads are loaded.
  static absl::StatusOr<DrafterRoom> OfFolder(const std::filesystem::path& folder,
                                              const ModelDescription& target);

  // Grows until there is room for `other` too.
  void Cover(const DrafterRoom& other) {
    kv_layers = std::max(kv_layers, other.kv_layers);
    feature_parts = std::max(feature_parts, other.feature_parts);
  }
  bool Holds(const DrafterRoom& other) const {
    return other.kv_layers <= kv_layers && other.feature_parts <= feature_parts;
  }
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_DRAFTER_ROOM_H_
