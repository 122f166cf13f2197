// Where top-k and top-p cut a row. No row is sorted as a whole, so common settings take O(V).
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_CUTS_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_CUTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/sampling/transform/row_kernels.h"

namespace tandem {

// Returns the k largest entries above -infinity, or fewer if there are fewer, as row::SortKey in no
// order. Among equal entries, lower ids come first. The span is valid until the thread's next call.
// PRECOND: k >= 1, no NaN.
std::span<uint64_t> LargestEntries(std::span<const float> values, size_t k);

// Keeps the k largest. PRECOND: k >= 1.
row::Cut TopKCut(std::span<const float> values, size_t k);

// Keeps the smallest set of most likely tokens whose probability reaches top_p (at least one).
//   scaled  [V]  logits minus their maximum, so they are <= 0
//   sum     the sum of exp(scaled)
// PRECOND: 0 < top_p < 1.
row::Cut TopPCut(std::span<const float> scaled, float top_p, double sum);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_CUTS_H_
