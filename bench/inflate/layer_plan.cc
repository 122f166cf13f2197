#include "bench/inflate/layer_plan.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Returns the places of the rows of small heads among the rows of large heads: for each large row
// the small row, or kAdded or kZero.
//   groups, heads   numbers of the small and of the large model
//   paired          dimensions are rotated in pairs (i, i + D / 2): see the header. Dimensions of
//                   two such matrices meet in a product, so added dimensions of a head are zero
std::vector<int64_t> PlaceHeads(size_t num_groups, size_t heads, size_t head_size,
                                size_t large_groups, size_t large_heads, size_t large_size,
                                bool paired) {
  std::vector<int64_t> places(large_groups * large_heads * large_size, kAdded);
  const size_t half = head_size / 2;
  for (size_t group = 0; group < num_groups; ++group) {
    for (size_t head = 0; head < heads; ++head) {
      const size_t small = (group * heads + head) * head_size;
      const size_t large = (group * large_heads + head) * large_size;
      if (paired)
        std::fill_n(places.begin() + static_cast<std::ptrdiff_t>(large), large_size, kZero);
      for (size_t i = 0; i < head_size; ++i) {
        size_t place = i;
        if (paired) place = i % half * (large_size / head_size) + (i < half ? 0 : large_size / 2);
        places[large + place] = static_cast<int64_t>(small + i);
      }
    }
  }
  return places;
}

}  // namespace

LayerPlan::LayerPlan(const ModelDescription& config, const InflatedShape& shape)
    : config_(config), shape_(shape) {
  const size_t group = config.attention.num_heads / config.attention.num_kv_heads;
  const size_t large_group = shape.num_heads / shape.num_kv_heads;
  const auto place = [&](size_t heads, size_t large_heads, bool paired) {
    return PlaceHeads(config.attention.num_kv_heads, heads, config.attention.head_size,
                      shape.num_kv_heads, large_heads, shape.head_size, paired);
  };
  query_rows_ = place(group, large_group, true);
  key_rows_ = place(1, 1, true);
  value_rows_ = place(1, 1, false);
  mixed_cols_ = place(group, large_group, false);
  hidden_ = FirstPlaces(config.hidden_size, shape.hidden_size);
  inner_ = FirstPlaces(config.mlp.inner_size, shape.intermediate_size);
  norm_scale_ =
      std::sqrt(static_cast<double>(config.hidden_size) / static_cast<double>(shape.hidden_size));
  query_scale_ = std::sqrt(static_cast<double>(shape.head_size) /
                           static_cast<double>(config.attention.head_size));
}

std::vector<int64_t> LayerPlan::Joined(size_t rows) const {
  std::vector<int64_t> joined;
  for (size_t row = 0; row < rows; ++row) {
    for (const int64_t place : hidden_) {
      const auto begin = static_cast<int64_t>(row * config_.hidden_size);
      joined.push_back(place < 0 ? place : begin + place);
    }
  }
  return joined;
}

void LayerPlan::AddLayer(const std::string& prefix, const LayerWeights* layer, size_t inputs) {
  // For rows whose results are not used, and for columns that meet zeros.
  const double wide = 1 / std::sqrt(static_cast<double>(shape_.hidden_size));
  const auto add = [&](const std::string& name, const Linear LayerWeights::*linear,
                       const std::vector<int64_t>& rows, const std::vector<int64_t>& cols,
                       double deviation, double scale = 1) {
    const Linear* const source = layer != nullptr ? &(layer->*linear) : nullptr;
    InflatedTensor& tensor = AddMatrix(prefix + name + ".weight", source, rows, cols);
    tensor.fill_deviation = deviation;
    tensor.scale = scale;
    if (!HasBias(linear)) return;
    AddVector(prefix + name + ".bias", source != nullptr ? &source->bias : nullptr, rows);
    tensors_.back().scale = scale;
  };
  // A layer of EAGLE has no norm before its attention.
  if (layer == nullptr || !layer->attention_norm.empty()) {
    AddNorm(prefix + "input_layernorm.weight", layer != nullptr ? &layer->attention_norm : nullptr);
  }
  using Layer = LayerWeights;
  const std::vector<int64_t> attended = Joined(inputs);
  add("self_attn.q_proj", &Layer::query, query_rows_, attended, wide, query_scale_);
  add("self_attn.k_proj", &Layer::key, key_rows_, attended, wide);
  add("self_attn.v_proj", &Layer::value, value_rows_, attended, wide);
  add("self_attn.o_proj", &Layer::attention_output, hidden_, mixed_cols_, 0);
  AddNorm(prefix + "post_attention_layernorm.weight",
          layer != nullptr ? &layer->mlp_norm : nullptr);
  add("mlp.gate_proj", &Layer::gate, inner_, hidden_, wide);
  add("mlp.up_proj", &Layer::up, inner_, hidden_, wide);
  add("mlp.down_proj", &Layer::down, hidden_, inner_, 0);
}

bool LayerPlan::HasBias(const Linear LayerWeights::*linear) const {
  using Layer = LayerWeights;
  if (linear == &Layer::query || linear == &Layer::key || linear == &Layer::value) {
    return config_.attention.qkv_bias;
  }
  return linear == &Layer::attention_output ? config_.attention.output_bias : config_.mlp.has_bias;
}

InflatedTensor& LayerPlan::AddMatrix(const std::string& name, const Linear* source,
                                     const std::vector<int64_t>& rows,
                                     const std::vector<int64_t>& cols) {
  InflatedTensor tensor = {.name = name,
                           .shape = {rows.size(), cols.size()},
                           .rows = rows.size(),
                           .cols = cols.size(),
                           .row_of = rows,
                           .col_of = cols};
  if (source != nullptr) {
    tensor.source = source->weight;
    tensor.source_dtype = source->dtype;
    tensor.source_cols = source->in_features;
  }
  return tensors_.emplace_back(std::move(tensor));
}

InflatedTensor& LayerPlan::AddVector(const std::string& name, const std::vector<float>* source,
                                     const std::vector<int64_t>& cols) {
  InflatedTensor tensor = {.name = name,
                           .shape = {cols.size()},
                           .rows = 1,
                           .cols = cols.size(),
                           .row_of = {0},
                           .col_of = cols};
  if (source != nullptr) {
    tensor.source = source->data();
    tensor.source_dtype = DType::kF32;
    tensor.source_cols = source->size();
  }
  return tensors_.emplace_back(std::move(tensor));
}

InflatedTensor& LayerPlan::AddNorm(const std::string& name, const std::vector<float>* source) {
  InflatedTensor& tensor = AddVector(name, source, hidden_);
  tensor.scale = norm_scale_;
  return tensor;
}

}  // namespace tandem
