#include "common/model/cuda/cuda_weights.h"

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

std::array<const Linear*, 3> Qkv(const LayerWeights& layer) {
  return {&layer.query, &layer.key, &layer.value};
}
std::array<const Linear*, 2> GateUp(const LayerWeights& layer) { return {&layer.gate, &layer.up}; }

}  // namespace

absl::Status CheckForGpu(const std::filesystem::path& folder, const ModelDescription& model,
                         std::span<const LayerWeights> layers) {
  const std::pair<const char*, size_t> sizes[] = {
      {"hidden_size", model.hidden_size},
      {"intermediate_size", model.mlp.inner_size},
      {"num_attention_heads * head_dim", model.attention.query_floats()}};
  for (const auto& [name, size] : sizes) {
    if (size % 8 == 0) continue;
    return InvalidArgument(absl::StrCat((folder / "config.json").string(), ": ", name, " is ", size,
                                        ": on a GPU it must be a multiple of 8"));
  }
  // Products that take the same rows are one product on a GPU, so their weights have one type.
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerWeights& layer = layers[i];
    const std::tuple<const char*, const Linear*, const Linear*> pairs[] = {
        {"q_proj and k_proj", &layer.query, &layer.key},
        {"q_proj and v_proj", &layer.query, &layer.value},
        {"gate_proj and up_proj", &layer.gate, &layer.up}};
    for (const auto& [names, first, second] : pairs) {
      if (first->dtype == second->dtype) continue;
      return InvalidArgument(absl::StrCat(folder.string(), ": layer ", i, ": ", names, " are ",
                                          Name(first->dtype), " and ", Name(second->dtype),
                                          ": on a GPU they must have one type"));
    }
  }
  return absl::OkStatus();
}

uint64_t CudaLayerWeights::Bytes(const LayerWeights& layer) {
  uint64_t bytes = 0;
  const auto add = [&](const auto& value) { bytes += WeightUploader::Bytes(value); };
  add(layer.attention_norm);
  add(layer.query_norm);
  add(layer.key_norm);
  add(layer.mlp_norm);
  add(Qkv(layer));
  add(GateUp(layer));
  add(layer.attention_output);
  add(layer.down);
  return bytes;
}

absl::StatusOr<CudaLayerWeights> CudaLayerWeights::Upload(const LayerWeights& layer,
                                                          WeightUploader& uploader) {
  CudaLayerWeights to;
  TANDEM_ASSIGN_OR_RETURN(to.attention_norm, uploader.Copy(layer.attention_norm, "a norm"));
  TANDEM_ASSIGN_OR_RETURN(to.qkv, uploader.Copy(Qkv(layer), "q_proj, k_proj and v_proj"));
  TANDEM_ASSIGN_OR_RETURN(to.query_norm, uploader.Copy(layer.query_norm, "a norm of heads"));
  TANDEM_ASSIGN_OR_RETURN(to.key_norm, uploader.Copy(layer.key_norm, "a norm of heads"));
  TANDEM_ASSIGN_OR_RETURN(to.attention_output, uploader.Copy(layer.attention_output, "o_proj"));
  TANDEM_ASSIGN_OR_RETURN(to.mlp_norm, uploader.Copy(layer.mlp_norm, "a norm"));
  TANDEM_ASSIGN_OR_RETURN(to.gate_up, uploader.Copy(GateUp(layer), "gate_proj and up_proj"));
  TANDEM_ASSIGN_OR_RETURN(to.down, uploader.Copy(layer.down, "down_proj"));
  return to;
}

uint64_t CudaWeights::Bytes(const ModelWeights& weights) {
  uint64_t bytes = 0;
  const auto add = [&](const auto& value) { bytes += WeightUploader::Bytes(value); };
  add(weights.embedding);
  for (const LayerWeights& layer : weights.layers) bytes += CudaLayerWeights::Bytes(layer);
  add(weights.final_norm);
  if (weights.output.weight != weights.embedding.weight) add(weights.output);
  return bytes;
}

absl::StatusOr<CudaWeights> CudaWeights::Upload(const ModelWeights& weights, DeviceArena& arena,
                                                const DeviceStream& stream,
                                                const std::function<void(uint64_t)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(WeightUploader uploader,
                          WeightUploader::Create(arena, stream, on_progress));
  CudaWeights copy;
  TANDEM_ASSIGN_OR_RETURN(copy.embedding, uploader.Copy(weights.embedding, "the embedding"));
  for (const LayerWeights& layer : weights.layers) {
    TANDEM_ASSIGN_OR_RETURN(copy.layers.emplace_back(), CudaLayerWeights::Upload(layer, uploader));
  }
  TANDEM_ASSIGN_OR_RETURN(copy.final_norm, uploader.Copy(weights.final_norm, "a norm"));
  if (weights.output.weight == weights.embedding.weight) {
    copy.output = copy.embedding;
  } else {
    TANDEM_ASSIGN_OR_RETURN(copy.output, uploader.Copy(weights.output, "lm_head"));
  }
  TANDEM_RETURN_IF_ERROR(stream.Wait());
  return copy;
}

}  // namespace tandem
