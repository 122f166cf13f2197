// The model of the tests that need a judge or a proposer on a device, and little work for it.
#ifndef TANDEM_TESTS_CUDA_SMALL_MODEL_H_
#define TANDEM_TESTS_CUDA_SMALL_MODEL_H_

#include <cstddef>

#include "tests/support/random_model.h"

namespace tandem::testing {

inline RandomModelSpec SmallModel(size_t vocabulary_size, size_t max_positions) {
  RandomModelSpec spec;
  spec.vocabulary_size = vocabulary_size;
  spec.hidden_size = 8;
  spec.num_layers = 1;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_size = 4;
  spec.intermediate_size = 8;
  spec.max_position_embeddings = max_positions;
  return spec;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_CUDA_SMALL_MODEL_H_
