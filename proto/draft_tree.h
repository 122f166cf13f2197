// The shape of a draft on the wire: a chain or a tree of tokens (tandem/v1/worker.proto).
#ifndef TANDEM_PROTO_DRAFT_TREE_H_
#define TANDEM_PROTO_DRAFT_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace tandem {

// Limits of a draft. A chain has at most max_depth tokens.
struct DraftLimits {
  uint32_t max_depth = 0;  // tokens on the longest path
  uint32_t max_nodes = 0;  // tokens of a tree; 0: only chains
};

// Returns whether each token follows the one before it.
bool IsChain(std::span<const int32_t> parents);

// Returns the number of tokens on the longest path. `parents` is empty for a chain. PRECOND:
// CheckDraft accepted the draft.
uint32_t DepthOfDraft(std::span<const int32_t> parents, size_t num_tokens);

// INVALID_ARGUMENT: `parents` is neither empty nor has one parent for each draft token, a parent is
// no earlier token and not -1, or the draft is too deep or has too many tokens. The message says
// where, what was given and what is allowed.
absl::Status CheckDraft(std::span<const int32_t> parents, size_t num_tokens,
                        const DraftLimits& limits);

// Returns whether `path` names tokens of a draft from a token without a parent on, each the parent
// of the next.
bool IsPathOfDraft(std::span<const int32_t> parents, size_t num_tokens,
                   std::span<const uint32_t> path);

}  // namespace tandem

#endif  // TANDEM_PROTO_DRAFT_TREE_H_
