// In which order a product with one or two rows of x reads the weights.
#ifndef TANDEM_KERNELS_SUPPORT_READ_ORDER_H_
#define TANDEM_KERNELS_SUPPORT_READ_ORDER_H_

#include <cstddef>
#include <optional>

namespace tandem {

// The results are the same, bit for bit.
enum class ReadOrder {
  kSomeRowsTogether,  // Some weight rows at the same time share the loads of x.
  kRowAfterRow,       // Weights are read in the order of memory.
};

// Returns the better order for a product with so many bytes of weights.
//
// On an AMD EPYC (Zen 5, two cores), weights that come from memory take 0.88 of the time row after
// row, and weights in a cache take up to 1.2 of it. AMD's CPUs with AVX-512 therefore read large
// weights row after row. This was not measured on Zen 4. Other CPUs read some rows together,
// because the other order was not measured there.
ReadOrder ReadOrderOf(size_t weight_bytes);

// Makes ReadOrderOf return `order`, or its own choice again. For tests.
void ForceReadOrder(std::optional<ReadOrder> order);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SUPPORT_READ_ORDER_H_
