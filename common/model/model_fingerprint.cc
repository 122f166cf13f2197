#include "common/model/model_fingerprint.h"

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tandem {
namespace {

constexpr size_t kNumPieces = 16;
constexpr size_t kFingerprintPieceBytes = 4096;

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
    if (bytes <= kNumPieces * kFingerprintPieceBytes) {
      Add(data, bytes);
    } else {
      const size_t last = bytes - kFingerprintPieceBytes;
      for (size_t i = 0; i < kNumPieces; ++i) {
        Add(data + last * i / (kNumPieces - 1), kFingerprintPieceBytes);
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

// Fields that only one architecture has are added only if they are set, so that other models keep
// their fingerprints.
std::string FingerprintModel(const ModelWeights& weights, const ModelDescription& model) {
  const AttentionDescription& attention = model.attention;
  Digest digest;
  for (const size_t size :
       {model.vocabulary_size, model.hidden_size, model.mlp.inner_size, model.num_layers,
        attention.num_heads, attention.num_kv_heads, attention.head_size}) {
    digest.Add(uint64_t{size});
  }
  digest.Add(model.norm_eps);
  digest.Add(attention.rope.theta);
  const Llama3RopeScaling scaling = attention.rope.scaling.value_or(Llama3RopeScaling{});
  digest.Add(uint64_t{attention.rope.scaling.has_value()});
  for (const double constant : {scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
                                scaling.original_max_position_embeddings}) {
    digest.Add(constant);
  }
  digest.Add(weights.embedding);
  for (const LayerWeights& layer : weights.layers) {
    digest.Add(layer.attention_norm);
    for (const Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                                 &layer.gate, &layer.up, &layer.down}) {
      digest.Add(*linear);
    }
    for (const std::vector<float>* norm : {&layer.query_norm, &layer.key_norm}) {
      if (!norm->empty()) digest.Add(*norm);
    }
    digest.Add(layer.mlp_norm);
  }
  digest.Add(weights.final_norm);
  digest.Add(weights.output);
  return digest.Finish();
}

}  // namespace tandem
