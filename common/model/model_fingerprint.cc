#include "common/model/model_fingerprint.h"

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tandem {
namespace {

constexpr size_t kNumPieces = 16;
constexpr size_t kPieceBytes = 4096;

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }

  void Add(const void* data, size_t bytes) { EVP_DigestUpdate(context_.get(), data, bytes); }
  void Add(uint64_t number) { Add(&number, sizeof(number)); }
  void Add(double number) { Add(&number, sizeof(number)); }
  void Add(const std::vector<float>& numbers) {
    Add(uint64_t{numbers.size()});
    Add(numbers.data(), numbers.size() * sizeof(float));
  }
  void Add(const Linear& linear) {
    Add(static_cast<uint64_t>(linear.dtype));
    Add(uint64_t{linear.out_features});
    Add(uint64_t{linear.in_features});
    const auto* data = static_cast<const std::byte*>(linear.weight);
    const size_t bytes = linear.out_features * linear.in_features * SizeOf(linear.dtype);
    if (bytes <= kNumPieces * kPieceBytes) {
      Add(data, bytes);
    } else {
      const size_t last = bytes - kPieceBytes;
      for (size_t i = 0; i < kNumPieces; ++i) {
        Add(data + last * i / (kNumPieces - 1), kPieceBytes);
      }
    }
    Add(linear.bias);
  }

  std::string Finish() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned bytes = 0;
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &bytes);
    digest.resize(bytes);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string FingerprintModel(const LlamaWeights& weights, const ModelConfig& config) {
  Digest digest;
  for (const size_t size :
       {config.vocabulary_size, config.hidden_size, config.intermediate_size, config.num_layers,
        config.num_heads, config.num_kv_heads, config.head_size}) {
    digest.Add(uint64_t{size});
  }
  digest.Add(config.rms_norm_eps);
  digest.Add(config.rope_theta);
  const Llama3RopeScaling scaling = config.rope_scaling.value_or(Llama3RopeScaling{});
  digest.Add(uint64_t{config.rope_scaling.has_value()});
  for (const double constant : {scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
                                scaling.original_max_position_embeddings}) {
    digest.Add(constant);
  }
  digest.Add(weights.embedding);
  for (const LlamaLayerWeights& layer : weights.layers) {
    digest.Add(layer.attention_norm);
    for (const Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                                 &layer.gate, &layer.up, &layer.down}) {
      digest.Add(*linear);
    }
    digest.Add(layer.mlp_norm);
  }
  digest.Add(weights.final_norm);
  digest.Add(weights.output);
  return digest.Finish();
}

}  // namespace tandem
