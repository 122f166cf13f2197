// Constants that router and workers share.
#ifndef TANDEM_COMMON_RPC_PROTOCOL_H_
#define TANDEM_COMMON_RPC_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

// Version of proto/tandem/v1/worker.proto. Both sides must have the same version, because workers
// and router are one release.
inline constexpr uint32_t kProtocolVersion = 9;

// Largest piece of log-prob rows in the stream (`inline` transport).
inline constexpr size_t kMaxChunkBytes = 1 << 20;

// Largest message between router and workers: a chunk, or a prompt of a million tokens, with room.
inline constexpr int kMaxWorkerMessageBytes = 16 << 20;

// Largest --draft-length and SpeculationParams.draft_length.
inline constexpr uint32_t kMaxDraftLength = 16;
// Largest --max-tree-nodes: draft tokens of a tree, whose depth is at most the draft length.
inline constexpr uint32_t kMaxTreeNodes = 64;
// Largest number of rows of a prompt that get log-probabilities in one pass (v1.PromptScores). The
// pass then holds no more logits for a slot than the pass of a large tree does.
inline constexpr uint32_t kMaxScoredRows = kMaxTreeNodes;
// Largest number of siblings that a draft model draws besides a token of its chain.
inline constexpr uint32_t kMaxSiblings = 3;
// Largest number of draft models of a pod. Each has a worker of its own.
inline constexpr uint32_t kMaxDraftModels = 4;
// Instead of a name of heads: none (v1.SetHeads).
inline constexpr std::string_view kNoHeads = "none";

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_PROTOCOL_H_
