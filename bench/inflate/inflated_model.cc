#include "bench/inflate/inflated_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/model_weights.h"
#include "common/status.h"
#include "kernels/dtype.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// The hidden dimension that pushes the logits of added tokens down. Its value is kMark for every
// token of the model. The square of kMark is zero. The next two constants are its weight in the
// final norm, and the weight of added tokens for it.
constexpr float kMark = 0x1p-100f;
constexpr float kMarkWeight = 0x1p110f;
constexpr float kAddedToken = -0x1p14f;

// Rows and columns that the model lacks: they are filled with random numbers (kAdded) or with zeros
// (kZero).
constexpr int64_t kAdded = -1;
constexpr int64_t kZero = -2;

// A matrix (or a vector, which is one row). A part comes from the small model, and the rest is
// filled.
struct Inflated {
  std::string name;
  std::vector<uint64_t> shape;  // shape in the file
  size_t rows = 0;
  size_t cols = 0;
  const void* source = nullptr;  // [?, source_cols]; null: no part comes from the model
  DType source_dtype = DType::kBF16;
  size_t source_cols = 0;
  std::vector<int64_t> row_of;  // [rows] row of the source, kAdded or kZero
  std::vector<int64_t> col_of;  // [cols] column of the source, kAdded or kZero
  double scale = 1;
  double fill_deviation = 0;  // deviation of the uniform numbers outside of the model; 0: zeros
  std::optional<std::pair<size_t, float>> mark = {};  // column and value, in rows of the model
  std::optional<std::pair<size_t, float>> added_mark = {};  // column and value, in added rows
};

float ToFloat(const void* data, DType dtype, size_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(data) + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + index * sizeof(bits), sizeof(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to the nearest number, and ties to even.
uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Returns 0, 1, …, count - 1, and then kAdded.
std::vector<int64_t> First(size_t count, size_t size) {
  std::vector<int64_t> places(size, kAdded);
  std::iota(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count), 0);
  return places;
}

// Returns the places of the rows of small heads among the rows of large heads: for each large row
// the small row, or kAdded or kZero.
//   groups, heads   numbers of the small and of the large model
//   paired          dimensions are rotated in pairs (i, i + D / 2): see the header. Dimensions of
//                   two such matrices meet in a product, so added dimensions of a head are zero
//                   such matrices meet in a product, so added dimensions of a head are zero
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

class Plan {
 public:
  Plan(const ModelDescription& config, const InflatedShape& shape, const ModelWeights& weights)
      : config_(config), shape_(shape), weights_(weights) {
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
    hidden_ = First(config.hidden_size, shape.hidden_size);
    inner_ = First(config.mlp.inner_size, shape.intermediate_size);
    norm_scale_ =
        std::sqrt(static_cast<double>(config.hidden_size) / static_cast<double>(shape.hidden_size));
    query_scale_ = std::sqrt(static_cast<double>(shape.head_size) /
                             static_cast<double>(config.attention.head_size));
  }

  std::vector<Inflated> Make() {
    AddVocabulary("model.embed_tokens.weight", weights_.embedding, kMark);
    for (size_t l = 0; l < shape_.num_layers; ++l) AddLayer(l);
    AddNorm("model.norm.weight", &weights_.final_norm);
    if (shape_.hidden_size > config_.hidden_size) {
      tensors_.back().mark = {config_.hidden_size, kMarkWeight};
    }
    if (!config_.tied_embeddings) AddVocabulary("lm_head.weight", weights_.output, 0);
    return std::move(tensors_);
  }

 private:
  void AddVocabulary(const std::string& name, const Linear& linear, float mark) {
    Inflated& tensor =
        AddMatrix(name, &linear, First(config_.vocabulary_size, shape_.vocabulary_size), hidden_);
    if (shape_.hidden_size == config_.hidden_size) return;  // no tokens can be added
    if (mark != 0) tensor.mark = {config_.hidden_size, mark};
    tensor.added_mark = {config_.hidden_size, kAddedToken};
  }

  void AddLayer(size_t l) {
    const LayerWeights* layer = l < weights_.layers.size() ? &weights_.layers[l] : nullptr;
    const std::string prefix = absl::StrCat("model.layers.", l, ".");
    // For rows whose results are not used, and for columns that meet zeros.
    const double wide = 1 / std::sqrt(static_cast<double>(shape_.hidden_size));
    const auto add = [&](const std::string& name, const Linear LayerWeights::*linear,
                         const std::vector<int64_t>& rows, const std::vector<int64_t>& cols,
                         double deviation, double scale = 1) {
      const Linear* const source = layer != nullptr ? &(layer->*linear) : nullptr;
      Inflated& tensor = AddMatrix(prefix + name + ".weight", source, rows, cols);
      tensor.fill_deviation = deviation;
      tensor.scale = scale;
      if (!HasBias(linear)) return;
      AddVector(prefix + name + ".bias", source != nullptr ? &source->bias : nullptr, rows);
      tensors_.back().scale = scale;
    };
    AddNorm(prefix + "input_layernorm.weight", layer != nullptr ? &layer->attention_norm : nullptr);
    using Layer = LayerWeights;
    add("self_attn.q_proj", &Layer::query, query_rows_, hidden_, wide, query_scale_);
    add("self_attn.k_proj", &Layer::key, key_rows_, hidden_, wide);
    add("self_attn.v_proj", &Layer::value, value_rows_, hidden_, wide);
    add("self_attn.o_proj", &Layer::attention_output, hidden_, mixed_cols_, 0);
    AddNorm(prefix + "post_attention_layernorm.weight",
            layer != nullptr ? &layer->mlp_norm : nullptr);
    add("mlp.gate_proj", &Layer::gate, inner_, hidden_, wide);
    add("mlp.up_proj", &Layer::up, inner_, hidden_, wide);
    add("mlp.down_proj", &Layer::down, hidden_, inner_, 0);
  }

  bool HasBias(const Linear LayerWeights::*linear) const {
    using Layer = LayerWeights;
    if (linear == &Layer::query || linear == &Layer::key || linear == &Layer::value) {
      return config_.attention.qkv_bias;
    }
    return linear == &Layer::attention_output ? config_.attention.output_bias
                                              : config_.mlp.has_bias;
  }

  Inflated& AddMatrix(const std::string& name, const Linear* source,
                      const std::vector<int64_t>& rows, const std::vector<int64_t>& cols) {
    Inflated tensor = {.name = name,
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

  void AddVector(const std::string& name, const std::vector<float>* source,
                 const std::vector<int64_t>& cols) {
    Inflated tensor = {.name = name,
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
    tensors_.push_back(std::move(tensor));
  }

  void AddNorm(const std::string& name, const std::vector<float>* source) {
    AddVector(name, source, hidden_);
    tensors_.back().scale = norm_scale_;
  }

  const ModelDescription& config_;
  const InflatedShape& shape_;
  const ModelWeights& weights_;
  std::vector<int64_t> query_rows_;
  std::vector<int64_t> key_rows_;
  std::vector<int64_t> value_rows_;
  std::vector<int64_t> mixed_cols_;
  std::vector<int64_t> hidden_;
  std::vector<int64_t> inner_;
  double norm_scale_ = 1;
  double query_scale_ = 1;
  std::vector<Inflated> tensors_;
};

// Uniform random numbers for added weights, equal in every run: xorshift64* (Vigna 2016).
class Filler {
 public:
  float Next(double deviation) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const auto bits = static_cast<int32_t>((state_ * 0x2545F4914F6CDD1DULL) >> 40);  // 24 bits
    return static_cast<float>((bits - (1 << 23)) * 0x1p-23 * 1.7320508 * deviation);
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15ULL;
};

void MakeRow(const Inflated& tensor, size_t row, Filler& filler, std::vector<float>& values) {
  const int64_t source_row = tensor.source != nullptr ? tensor.row_of[row] : kAdded;
  for (size_t col = 0; col < tensor.cols; ++col) {
    const int64_t source_col = tensor.col_of[col];
    if (source_row >= 0 && source_col >= 0) {
      const size_t index =
          static_cast<size_t>(source_row) * tensor.source_cols + static_cast<size_t>(source_col);
      values[col] = static_cast<float>(
          tensor.scale * static_cast<double>(ToFloat(tensor.source, tensor.source_dtype, index)));
    } else {
      const bool is_zero = tensor.fill_deviation == 0 || tensor.row_of[row] == kZero;
      values[col] = is_zero ? 0.0f : filler.Next(tensor.fill_deviation);
    }
  }
  const auto& mark = source_row >= 0 ? tensor.mark : tensor.added_mark;
  if (mark.has_value()) values[mark->first] = mark->second;
}

absl::Status CannotWrite(const std::filesystem::path& path) {
  return Unavailable(absl::StrCat("cannot write ", path.string()));
}

absl::Status WriteWeights(const std::filesystem::path& path, const std::vector<Inflated>& tensors,
                          DType dtype, const std::function<void(uint64_t, uint64_t)>& on_progress) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t all = 0;
  for (const Inflated& tensor : tensors) {
    const uint64_t end = all + tensor.rows * tensor.cols * SizeOf(dtype);
    header[tensor.name] = {{"dtype", dtype == DType::kF32 ? "F32" : "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {all, end}}};
    all = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = text.size();
  static_assert(std::endian::native == std::endian::little);
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;

  Filler filler;
  std::vector<float> values;
  std::vector<uint16_t> halves;
  uint64_t done = 0;
  for (const Inflated& tensor : tensors) {
    values.resize(tensor.cols);
    halves.resize(tensor.cols);
    for (size_t row = 0; row < tensor.rows; ++row) {
      MakeRow(tensor, row, filler, values);
      if (dtype == DType::kF32) {
        file.write(reinterpret_cast<const char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * sizeof(float)));
      } else {
        std::transform(values.begin(), values.end(), halves.begin(), ToBF16);
        file.write(reinterpret_cast<const char*>(halves.data()),
                   static_cast<std::streamsize>(halves.size() * sizeof(uint16_t)));
      }
      done += tensor.cols * SizeOf(dtype);
    }
    if (!file) return CannotWrite(path);
    if (on_progress) on_progress(done, all);
  }
  file.close();
  return file ? absl::OkStatus() : CannotWrite(path);
}

absl::StatusOr<Json> ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(path.string() + ": is not JSON");
  return json;
}

absl::Status WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : CannotWrite(path);
}

absl::Status WriteConfig(const std::filesystem::path& from, const std::filesystem::path& to,
                         const ModelDescription& config, const InflatedShape& shape) {
  TANDEM_ASSIGN_OR_RETURN(Json json, ReadJson(from / "config.json"));
  json["vocab_size"] = shape.vocabulary_size;
  json["hidden_size"] = shape.hidden_size;
  json["intermediate_size"] = shape.intermediate_size;
  json["num_hidden_layers"] = shape.num_layers;
  json["num_attention_heads"] = shape.num_heads;
  json["num_key_value_heads"] = shape.num_kv_heads;
  json["head_dim"] = shape.head_size;
  json["rms_norm_eps"] = config.norm_eps * static_cast<double>(config.hidden_size) /
                         static_cast<double>(shape.hidden_size);
  return WriteText(to / "config.json", json.dump(2) + "\n");
}

// Makes entries of the vocabulary that no merge leads to.
absl::Status WriteTokenizer(const std::filesystem::path& from, const std::filesystem::path& to,
                            size_t size, size_t large_size) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ReadJson(from / "tokenizer.json"));
  std::string text = json.dump();
  std::string entries;
  for (size_t id = size; id < large_size; ++id) {
    absl::StrAppend(&entries, ",\"Ġunused", id, "\":", id);
  }
  // The entries are added to the text, at the end of the vocabulary. An ordered JSON object would
  // search linearly for duplicates.
  const std::string vocabulary = json["model"]["vocab"].dump();
  const size_t at = text.find(vocabulary);
  if (at == std::string::npos || vocabulary.size() <= 2) {
    return InvalidArgument((from / "tokenizer.json").string() + ": model.vocab is not an object");
  }
  text.insert(at + vocabulary.size() - 1, entries);
  return WriteText(to / "tokenizer.json", text);
}

bool IsPowerOfFour(size_t large, size_t small) {
  size_t ratio = large / small;
  if (ratio * small != large) return false;
  while (ratio % 4 == 0) ratio /= 4;
  return ratio == 1;
}

}  // namespace

InflatedShape Llama1B() {
  return {.vocabulary_size = 128256,
          .hidden_size = 2048,
          .intermediate_size = 8192,
          .num_layers = 16,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_size = 64};
}

InflatedShape Llama3B() {
  return {.vocabulary_size = 128256,
          .hidden_size = 3072,
          .intermediate_size = 8192,
          .num_layers = 28,
          .num_heads = 24,
          .num_kv_heads = 8,
          .head_size = 128};
}

bool IsExact(const ModelDescription& config, const InflatedShape& shape) {
  return IsPowerOfFour(shape.hidden_size, config.hidden_size) &&
         IsPowerOfFour(shape.head_size, config.attention.head_size);
}

absl::Status CheckInflation(const ModelDescription& config, const InflatedShape& shape) {
  const std::tuple<const char*, size_t, size_t> sizes[] = {
      {"vocab_size", config.vocabulary_size, shape.vocabulary_size},
      {"hidden_size", config.hidden_size, shape.hidden_size},
      {"intermediate_size", config.mlp.inner_size, shape.intermediate_size},
      {"num_hidden_layers", config.num_layers, shape.num_layers},
      {"num_key_value_heads", config.attention.num_kv_heads, shape.num_kv_heads},
      {"head_dim", config.attention.head_size, shape.head_size}};
  for (const auto& [name, small, large] : sizes) {
    if (large >= small) continue;
    return InvalidArgument(absl::StrCat(name, ": the model has ", small, ", the shape ", large));
  }
  if (shape.num_heads % shape.num_kv_heads != 0 ||
      shape.num_heads / shape.num_kv_heads <
          config.attention.num_heads / config.attention.num_kv_heads) {
    return InvalidArgument(absl::StrCat("num_attention_heads: the model has ",
                                        config.attention.num_heads, " for ",
                                        config.attention.num_kv_heads, " of keys, the shape ",
                                        shape.num_heads, " for ", shape.num_kv_heads));
  }
  if (shape.head_size % config.attention.head_size != 0) {
    return InvalidArgument(absl::StrCat("head_dim: ", shape.head_size, " is not a multiple of the ",
                                        "model's ", config.attention.head_size));
  }
  if (config.attention.has_head_norms) {
    return InvalidArgument("q_norm: a model that normalizes its heads cannot be inflated");
  }
  if (config.attention.rope.scaling.has_value() && shape.head_size != config.attention.head_size) {
    return InvalidArgument("head_dim: cannot change if rope_scaling is set");
  }
  if (shape.vocabulary_size > config.vocabulary_size && shape.hidden_size == config.hidden_size) {
    return InvalidArgument("vocab_size: tokens can be added only if hidden_size grows too");
  }
  return absl::OkStatus();
}

absl::Status InflateModel(const std::filesystem::path& from, const std::filesystem::path& to,
                          const InflatedShape& shape,
                          const std::function<void(uint64_t done, uint64_t all)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(const ModelDescription config, ModelDescription::Load(from));
  TANDEM_RETURN_IF_ERROR(CheckInflation(config, shape));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(from));
  TANDEM_ASSIGN_OR_RETURN(const ModelWeights weights, ModelWeights::Load(*checkpoint, config));
  const DType dtype = weights.embedding.dtype;
  if (dtype == DType::kF16) {
    return InvalidArgument((from / "model.safetensors").string() +
                           ": weights are F16, want BF16 or F32");
  }
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) return CannotWrite(to);
  if (std::filesystem::equivalent(from, to, error)) {
    return InvalidArgument(to.string() + ": this is the small model's own folder");
  }
  TANDEM_RETURN_IF_ERROR(WriteConfig(from, to, config, shape));
  TANDEM_RETURN_IF_ERROR(WriteTokenizer(from, to, config.vocabulary_size, shape.vocabulary_size));
  for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
    if (!std::filesystem::exists(from / name)) continue;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) return CannotWrite(to / name);
  }
  return WriteWeights(to / "model.safetensors", Plan(config, shape, weights).Make(), dtype,
                      on_progress);
}

}  // namespace tandem
