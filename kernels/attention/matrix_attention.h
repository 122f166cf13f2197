// Attention on a GPU's matrix units, for models that round activations. kernels/attention_cuda.cu
// calls it and merges the partial softmaxes.
#ifndef TANDEM_KERNELS_ATTENTION_MATRIX_ATTENTION_H_
#define TANDEM_KERNELS_ATTENTION_MATRIX_ATTENTION_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/device/stream.h"

namespace tandem::matrix_attention {

// Returns whether heads of this size have a kernel here, with pages of this type.
bool HasHeads(size_t head_size, DType dtype);
// Returns whether the matrix units compute this attention. It depends only on the model: the type
// of the pages, the size of heads, and whether the result is rounded to BF16.
bool Takes(const DeviceAttentionArgs& args);

// The most bytes of dynamic shared memory that a thread block takes. PRECOND: HasHeads.
size_t SharedBytes(size_t head_size);

// Enqueues the attention. If `has_partials` becomes true, the result is in the partial softmaxes,
// and the caller merges them. Else it is complete. INTERNAL: the launch was refused.
absl::Status Attend(const DeviceAttentionArgs& args, CudaStream stream, bool* has_partials);

}  // namespace tandem::matrix_attention

#endif  // TANDEM_KERNELS_ATTENTION_MATRIX_ATTENTION_H_
