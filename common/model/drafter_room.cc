#include "common/model/drafter_room.h"

#include "common/model/heads/eagle/eagle_description.h"
#include "common/model/heads/heads_kind.h"
#include "common/model/heads/heads_weights.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<DrafterRoom> DrafterRoom::OfFolder(const std::filesystem::path& folder,
                                                  const ModelDescription& target) {
  TANDEM_ASSIGN_OR_RETURN(const HeadsKind kind, KindOfHeads(folder));
  if (kind != HeadsKind::kEagle) return DrafterRoom();
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, OpenHeads(folder));
  TANDEM_ASSIGN_OR_RETURN(const EagleDescription eagle,
                          EagleDescription::Load(folder, *checkpoint, target));
  return DrafterRoom{.kv_layers = 1, .feature_parts = eagle.features.parts.size()};
}

}  // namespace tandem
