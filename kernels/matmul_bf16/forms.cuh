// What becomes of the sums of a product with BF16 weights. A form says which two features make a
// pair, and finishes a pair once its sums are known. A fragment holds the pairs p … p + 7: their
// first features are its rows 0 … 7, and their second ones its rows 8 … 15.
//
// Each form has
//   product                  the operands
//   NumPairs()               number of pairs
//   Feature(pair, second)    a feature of a pair. Pairs past the end have features of the last one
//   Finish(row, pair, sums)  takes the sums of a pair for one row of x. It does nothing for rows and
//                            pairs past the end
#ifndef TANDEM_KERNELS_MATMUL_BF16_FORMS_CUH_
#define TANDEM_KERNELS_MATMUL_BF16_FORMS_CUH_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/device/device_code.cuh"
#include "kernels/matmul_bf16/fragments.cuh"

namespace tandem::bf16_product {

// The sums of a pair.
struct PairSums {
  float first, second;
};

__device__ inline float WithBias(const MatMulArgs& args, size_t feature, float sum) {
  return args.bias == nullptr ? sum : __fadd_rn(sum, args.bias[feature]);
}

// The sums are written, or added to what is there. Features that are eight apart make a pair.
struct PlainForm {
  MatMulArgs product;

  __host__ __device__ size_t NumPairs() const {
    return (product.out_features + kFeatures - 1) / kFeatures * kPairs;
  }
  __device__ size_t Feature(size_t pair, bool second) const {
    const size_t feature = Unclamped(pair, second);
    return feature < product.out_features ? feature : product.out_features - 1;
  }
  __device__ void Finish(size_t row, size_t pair, const PairSums& sums) const {
    if (row >= product.rows) return;
    Write(row, Unclamped(pair, false), sums.first);
    Write(row, Unclamped(pair, true), sums.second);
  }

 private:
  __device__ static size_t Unclamped(size_t pair, bool second) {
    return pair / kPairs * kFeatures + pair % kPairs + (second ? kPairs : 0);
  }
  __device__ void Write(size_t row, size_t feature, float sum) const {
    if (feature >= product.out_features) return;
    sum = WithBias(product, feature, sum);
    float* const out = product.out + row * product.out_stride + feature;
    *out = product.add_to_out ? __fadd_rn(*out, sum) : sum;
  }
};

}  // namespace tandem::bf16_product

#endif  // TANDEM_KERNELS_MATMUL_BF16_FORMS_CUH_
