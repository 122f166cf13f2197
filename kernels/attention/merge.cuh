// How partial softmaxes are merged (online softmax, Milakov and Gimelshein 2018). All kernels of
// attention use these functions, in the order of the blocks, so that it makes no difference where
// blocks are merged.
#ifndef TANDEM_KERNELS_ATTENTION_MERGE_CUH_
#define TANDEM_KERNELS_ATTENTION_MERGE_CUH_

#include <cuda_runtime.h>

namespace tandem {

// The factor of what is merged so far, and that of the block that comes next.
struct MergeFactors {
  float keep;
  float take;
};

// Raises `largest` to the largest score of the next block. At first it is -INFINITY.
__device__ inline MergeFactors RaiseLargest(float of_block, float* largest) {
  const float both = fmaxf(*largest, of_block);
  const MergeFactors factors = {expf(*largest - both), expf(of_block - both)};
  *largest = both;
  return factors;
}

// Merges a sum of the next block into the same sum of the blocks before it.
__device__ inline float MergeSums(float merged, float of_block, const MergeFactors& factors,
                                  bool is_first) {
  return is_first ? of_block : __fmaf_rn(merged, factors.keep, __fmul_rn(of_block, factors.take));
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_ATTENTION_MERGE_CUH_
