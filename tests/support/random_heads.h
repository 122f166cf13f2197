// Writes folders of heads with random weights, for tests.
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_HEADS_H_
#define TANDEM_TESTS_SUPPORT_RANDOM_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "kernels/dtype.h"
#include "nlohmann/json.hpp"

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

// The sizes of the target are those of RandomModelSpec.
struct RandomEagleSpec {
  size_t hidden_size = 32;      // the target's
  size_t vocabulary_size = 64;  // the target's
  size_t num_heads = 4;
  size_t num_kv_heads = 2;  // the target's
  size_t head_size = 8;     // the target's
  size_t intermediate_size = 48;
  bool is_third = false;   // EAGLE-3; otherwise EAGLE-1
  bool has_bias = true;    // the product that joins embedding and feature has one; EAGLE-1 alone
  bool has_output = true;  // an output product of its own; false: the target's
  // The rest is of EAGLE-3 alone.
  size_t truncated_vocabulary_size = 0;  // tokens that the layer knows; 0: all. PRECOND: has_output
  std::vector<size_t> layer_ids = {};    // eagle_aux_hidden_state_layer_ids; empty: the default
  bool has_middle_names = true;          // midlayer.* and eagle_config, as SafeAILab has them
  DType dtype = DType::kF32;
  double output_scale = 1.0;  // standard deviation of the output product's weights
  uint64_t seed = 1;
};

// Writes config.json and model.safetensors of a layer of EAGLE, with the names of EagleWeights.
// Creates the folder. Throws std::runtime_error if a file cannot be written.
void WriteRandomEagle(const std::filesystem::path& folder, const RandomEagleSpec& spec);

// The sizes of the target are those of RandomModelSpec.
struct RandomLookAheadSpec {
  size_t hidden_size = 32;  // the target's
  size_t num_rows = 3;
  DType dtype = DType::kF32;
  double deviation = 1.0;  // standard deviation of the embeddings
  uint64_t seed = 1;
};

// Writes config.json and model.safetensors of look-ahead embeddings (PaSS). Creates the folder.
// Throws std::runtime_error if a file cannot be written.
void WriteRandomLookAhead(const std::filesystem::path& folder, const RandomLookAheadSpec& spec);

// Writes config.json of a drafter that leaves layers of the target out. The values need not fit.
void WriteSkippedLayers(const std::filesystem::path& folder, const nlohmann::json& skipped,
                        const nlohmann::json& num_layers);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RANDOM_HEADS_H_
