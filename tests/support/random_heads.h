// Writes folders of heads of the Medusa family with random weights, for tests.
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_HEADS_H_
#define TANDEM_TESTS_SUPPORT_RANDOM_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "kernels/dtype.h"

namespace tandem::testing {

// The sizes of the target are those of RandomModelSpec.
struct RandomHeadsSpec {
  size_t hidden_size = 32;               // the target's
  size_t vocabulary_size = 64;           // the target's
  size_t truncated_vocabulary_size = 0;  // tokens that the heads know; 0: all
  size_t num_heads = 3;
  size_t num_layers = 1;  // residual layers in a head
  bool has_bias = false;
  bool shares_output = false;       // all heads have one output product
  bool uses_target_output = false;  // it is the target's own; PRECOND: shares_output
  DType dtype = DType::kF32;
  // Standard deviation of the output products' weights. A larger value makes sharper distributions.
  // Other weights get 1/sqrt(hidden_size).
  double output_scale = 1.0;
  uint64_t seed = 1;
};

// Writes config.json and model.safetensors, with the names of HeadsDescription::Layout::kBlocks.
// Creates the folder. Throws std::runtime_error if a file cannot be written.
void WriteRandomHeads(const std::filesystem::path& folder, const RandomHeadsSpec& spec);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RANDOM_HEADS_H_
