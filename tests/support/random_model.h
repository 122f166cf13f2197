// Writes model folders with random weights of any shape, for tests (tiny models) and benchmarks
// (1B-shaped models).
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_MODEL_H_
#define TANDEM_TESTS_SUPPORT_RANDOM_MODEL_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace tandem::testing {

enum class RandomArchitecture {
  kLlama,
  kQwen2,  // has biases of queries, keys and values for any attention_bias
  kQwen3,  // has norms of the heads of queries and keys
};

struct RandomModelSpec {
  RandomArchitecture architecture = RandomArchitecture::kLlama;
  // The tokenizer has all entries. The last two are <|begin_of_text|> and <|end_of_text|>.
  size_t vocabulary_size = 64;
  size_t hidden_size = 32;
  size_t num_layers = 2;
  size_t num_heads = 4;
  size_t num_kv_heads = 2;
  size_t head_size = 8;
  size_t intermediate_size = 64;
  size_t max_position_embeddings = 512;
  double rope_theta = 10000.0;
  bool tied_embeddings = true;
  bool attention_bias = false;
  bool mlp_bias = false;
  DType dtype = DType::kF32;
  // Standard deviation of the embedding (and lm_head) entries. A larger value makes sharper
  // distributions. Other weights get 1/sqrt(in_features).
  double embedding_scale = 1.0;
  uint64_t seed = 1;
  size_t num_shards = 1;  // if > 1, the folder has model.safetensors.index.json and shards
};

// Llama-3.2-1B: hidden 2048, 16 layers, 32/8 heads of 64, inner 8192, vocabulary 128256, tied;
// BF16.
RandomModelSpec Llama1BShape();
// Llama-3.2-3B: hidden 3072, 28 layers, 24/8 heads of 128, inner 8192, vocabulary 128256, tied;
// BF16.
RandomModelSpec Llama3BShape();

// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the
// weights. The tokenizer is byte-level BPE. Its vocabulary begins with the 256 byte entries, or
// with fewer if the vocabulary is smaller: a small one has only entries for the letters a, b, c, …
// Made-up entries follow, and merges never reach them. Creates the folder. Throws
// std::runtime_error if a file cannot be written.
void WriteRandomModel(const std::filesystem::path& folder, const RandomModelSpec& spec);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RANDOM_MODEL_H_
