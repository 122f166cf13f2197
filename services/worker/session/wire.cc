#include "services/worker/session/wire.h"

#include <string>

#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

// Slot ids are indices, so this limit bounds the memory that a session can make a worker use.
constexpr uint32_t kMaxSessionSlots = 4096;

}  // namespace

absl::Status CheckTokenIds(const char* field, std::span<const int32_t> token_ids,
                           size_t vocabulary_size) {
  for (size_t i = 0; i < token_ids.size(); ++i) {
    if (token_ids[i] >= 0 && static_cast<size_t>(token_ids[i]) < vocabulary_size) continue;
    return InvalidArgument(std::string(field) + "[" + std::to_string(i) + "]: got " +
                           std::to_string(token_ids[i]) + ", want [0, " +
                           std::to_string(vocabulary_size) + ")");
  }
  return absl::OkStatus();
}

absl::Status CheckAttach(const v1::Attach& attach) {
  if (attach.protocol_version() != kProtocolVersion) {
    return FailedPrecondition("protocol_version: got " + std::to_string(attach.protocol_version()) +
                              ", want " + std::to_string(kProtocolVersion) +
                              " (router and workers must be of one release)");
  }
  if (attach.max_slots() == 0 || attach.max_slots() > kMaxSessionSlots) {
    return InvalidArgument("max_slots: got " + std::to_string(attach.max_slots()) + ", want 1 … " +
                           std::to_string(kMaxSessionSlots));
  }
  if (attach.max_draft_length() > kMaxDraftLength) {
    return InvalidArgument("max_draft_length: got " + std::to_string(attach.max_draft_length()) +
                           ", want 0 … " + std::to_string(kMaxDraftLength));
  }
  if (attach.max_tree_nodes() > kMaxTreeNodes) {
    return InvalidArgument("max_tree_nodes: got " + std::to_string(attach.max_tree_nodes()) +
                           ", want 0 … " + std::to_string(kMaxTreeNodes));
  }
  if (attach.draft_model_number() >= kMaxDraftModels) {
    return InvalidArgument("draft_model_number: got " +
                           std::to_string(attach.draft_model_number()) + ", want 0 … " +
                           std::to_string(kMaxDraftModels - 1));
  }
  return absl::OkStatus();
}

}  // namespace tandem
