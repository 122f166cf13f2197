// What becomes of the sums of a product with BF16 weights. A form says which two features make a
// pair, and finishes a pair once its sums are known. A fragment holds the pairs p … p + 7: their
// first features are its rows 0 … 7, and their second ones its rows 8 … 15.
//
// Each form has
//   product                   the operands
//   NumPairs()                number of pairs
//   Feature(pair, second)     a feature of a pair. Pairs past the end have features of the last one
//   Has(row, pair)            whether there is such a row of x and such a pair
//   Load(row, pair)           loads what finishing needs besides the sums, as a Known
//   Finish(row, pair, known, sums)  takes the sums of a pair for one row of x
// PRECOND of Load and Finish: Has(row, pair).
#ifndef TANDEM_KERNELS_MATMUL_BF16_FORMS_CUH_
#define TANDEM_KERNELS_MATMUL_BF16_FORMS_CUH_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/matmul_bf16/fragments.cuh"
#include "kernels/rope_cuda.cuh"

namespace tandem::bf16_product {

// The sums of a pair, or other numbers of its two features.
struct PairSums {
  float first, second;
};

// The biases of a pair's features. A product without bias adds nothing, because -0 + 0 is not -0.
struct PairBias {
  float first = 0, second = 0;
  bool is_there = false;

  __device__ PairSums AddTo(const PairSums& sums) const {
    if (!is_there) return sums;
    return {__fadd_rn(sums.first, first), __fadd_rn(sums.second, second)};
  }
};
template <typename Form>
__device__ inline PairBias LoadBias(const Form& form, size_t pair) {
  const float* const bias = form.product.bias;
  if (bias == nullptr) return {};
  return {bias[form.Feature(pair, false)], bias[form.Feature(pair, true)], true};
}

// Finishes a pair if it is there.
template <typename Form>
__device__ inline void LoadAndFinish(const Form& form, size_t row, size_t pair,
                                     const PairSums& sums) {
  if (form.Has(row, pair)) form.Finish(row, pair, form.Load(row, pair), sums);
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
  __device__ bool Has(size_t row, size_t pair) const {
    return row < product.rows && Unclamped(pair, false) < product.out_features;
  }

  struct Known {
    PairBias bias;
    PairSums before;  // what is there
  };
  __device__ Known Load(size_t row, size_t pair) const {
    Known known = {LoadBias(*this, pair), {0, 0}};
    if (product.add_to_out) {
      const float* const out = product.out + row * product.out_stride;
      known.before = {out[Feature(pair, false)], out[Feature(pair, true)]};
    }
    return known;
  }
  __device__ void Finish(size_t row, size_t pair, const Known& known, PairSums sums) const {
    sums = known.bias.AddTo(sums);
    if (product.add_to_out) {
      sums = {__fadd_rn(known.before.first, sums.first),
              __fadd_rn(known.before.second, sums.second)};
    }
    float* const out = product.out + row * product.out_stride;
    out[Unclamped(pair, false)] = sums.first;
    if (Unclamped(pair, true) < product.out_features) out[Unclamped(pair, true)] = sums.second;
  }

 private:
  __device__ static size_t Unclamped(size_t pair, bool second) {
    return pair / kPairs * kFeatures + pair % kPairs + (second ? kPairs : 0);
  }
};

// The gate of Llama's MLP. An element of the gate and the same element of up make a pair.
struct GateForm {
  MatMulArgs product;  // the weights of the gate, then those of up
  Bf16Rows out;        // [rows, NumPairs()]

  __host__ __device__ size_t NumPairs() const { return product.out_features / 2; }
  __device__ size_t Feature(size_t pair, bool second) const {
    return (pair < NumPairs() ? pair : NumPairs() - 1) + (second ? NumPairs() : 0);
  }
  __device__ bool Has(size_t row, size_t pair) const {
    return row < product.rows && pair < NumPairs();
  }

  using Known = PairBias;
  __device__ Known Load(size_t /*row*/, size_t pair) const { return LoadBias(*this, pair); }
  __device__ void Finish(size_t row, size_t pair, const Known& bias, PairSums sums) const {
    sums = bias.AddTo(sums);
    StoreBf16(out, row, pair, __fmul_rn(Silu(sums.first), sums.second));
  }
};

// Queries, keys and values. Two dimensions of a head that are half a head apart make a pair.
// Queries and keys are turned, and keys and values go to the cache.
struct RopeForm {
  MatMulArgs product;
  DeviceRopeAndStoreArgs rope;

  __host__ __device__ size_t NumPairs() const { return product.out_features / 2; }
  __device__ size_t Feature(size_t pair, bool second) const {
    const auto half = static_cast<unsigned>(rope.kv.head_size / 2);
    const auto there = static_cast<unsigned>(pair < NumPairs() ? pair : NumPairs() - 1);
    return size_t{there / half} * rope.kv.head_size + there % half + (second ? half : 0);
  }
  __device__ bool Has(size_t row, size_t pair) const {
    return row < product.rows && pair < NumPairs();
  }

  struct Known {
    PairBias bias;
    RopePair pair;
  };
  __device__ Known Load(size_t row, size_t pair) const {
    return {LoadBias(*this, pair), LoadRopePair(rope, row, pair)};
  }
  __device__ void Finish(size_t row, size_t /*pair*/, const Known& known, PairSums sums) const {
    sums = known.bias.AddTo(sums);
    TurnAndStore<DType::kBF16>(rope, row, known.pair, sums.first, sums.second);
  }
};

}  // namespace tandem::bf16_product

#endif  // TANDEM_KERNELS_MATMUL_BF16_FORMS_CUH_
