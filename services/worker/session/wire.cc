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

absl::Status CheckChain(std::span<const int32_t> parents, size_t num_draft_tokens) {
  if (parents.empty()) return absl::OkStatus();
  if (parents.size() != num_draft_tokens) {
    return InvalidArgument("parents: " + std::to_string(parents.size()) + " for " +
                           std::to_string(num_draft_tokens) + " draft tokens");
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] == static_cast<int32_t>(i) - 1) continue;
    return InvalidArgument("parents[" + std::to_string(i) + "]: got " + std::to_string(parents[i]) +
                           ", want " + std::to_string(static_cast<int32_t>(i) - 1) +
                           " (only chains are judged)");
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
  return absl::OkStatus();
}

}  // namespace tandem
