#include "services/router/engine/engine_command.h"

#include "absl/strings/str_cat.h"

namespace tandem {

std::string PeerName(PeerId peer) {
  const std::string kind = WorkerName(KindOf(peer));
  return peer <= kDrafterPeer ? kind : absl::StrCat(kind, "-", peer);
}

}  // namespace tandem
