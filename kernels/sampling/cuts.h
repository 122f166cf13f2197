// Where top-k and top-p cut a row. Nothing is sorted as a whole: O(V) for common settings.
#ifndef TANDEM_KERNELS_SAMPLING_CUTS_H_
#define TANDEM_KERNELS_SAMPLING_CUTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/sampling/row_kernels.h"

namespace tandem {

// The k largest entries above -infinity (fewer if there are not so many), lower ids first among
// equals, as row::SortKey in no order. The span is valid until the thread's next call. PRECOND: k
// >= 1, no NaN.
std::span<uint64_t> LargestEntries(std::span<const float> values, size_t k);

// Keeps the k largest. PRECOND: k >= 1.
row::Cut TopKCut(std::span<const float> values, size_t k);

// Keeps the smallest set of most likely tokens whose probability reaches top_p (at least one).
//   scaled   [V]  logits less their maximum, so <= 0
//   sum      of exp(scaled)
// PRECOND: 0 < top_p < 1.
row::Cut TopPCut(std::span<const float> scaled, float top_p, double sum);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_CUTS_H_
