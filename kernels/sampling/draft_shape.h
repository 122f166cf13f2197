// The shape of a draft: which draft token follows which.
#ifndef TANDEM_KERNELS_SAMPLING_DRAFT_SHAPE_H_
#define TANDEM_KERNELS_SAMPLING_DRAFT_SHAPE_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

// Most draft tokens on a path from the root, and most draft tokens of one draft, on a GPU. On the
// CPU, a token may have up to 256 children, because their numbers are part of a key of 8 bits.
inline constexpr size_t kMaxDraftDepth = 16;
inline constexpr size_t kMaxDraftTokens = 64;

// The node before all draft tokens: the pending token.
inline constexpr int32_t kDraftRoot = -1;

// A chain or a tree of draft tokens. Every token is a node, and siblings are alternatives for one
// position. The order of siblings is that of their indices.
//   parents  [num_tokens]  i32: parents[i] < i is the token before token i, or kDraftRoot. Null for
//                          a chain
struct DraftShape {
  int32_t num_tokens = 0;
  const int32_t* parents = nullptr;

  // Returns the first child of `node` whose index is above `after`. -1: there is none.
  constexpr int32_t NextChild(int32_t node, int32_t after) const {
    const int32_t first = (after > node ? after : node) + 1;
    if (parents == nullptr) return first == node + 1 && first < num_tokens ? first : -1;
    for (int32_t i = first; i < num_tokens; ++i) {
      if (parents[i] == node) return i;
    }
    return -1;
  }
  constexpr int32_t FirstChild(int32_t node) const { return NextChild(node, node); }
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_DRAFT_SHAPE_H_
