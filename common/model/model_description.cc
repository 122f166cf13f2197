#include "common/model/model_description.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "common/model/checkpoint/json_fields.h"
#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr double kLargest = 1e30;
constexpr double kSmallest = 1e-30;

// Says whether a product adds a bias.
enum class Bias {
  kNever,
  kAlways,
  kSetting,  // attention_bias or mlp_bias of config.json decides
};

// The facts that an architecture's name implies beyond the fields of config.json. Defaults of
// optional fields are those of the architecture's configuration class in transformers.
struct Architecture {
  std::string_view name;
  std::string_view model_type;
  Bias qkv_bias = Bias::kSetting;
  Bias output_bias = Bias::kSetting;
  Bias mlp_bias = Bias::kSetting;
  bool has_head_norms = false;
  bool has_window_switch = false;  // sliding_window counts only if use_sliding_window is true
  size_t default_kv_heads = 0;     // 0: num_attention_heads
  size_t default_head_size = 0;    // 0: hidden_size / num_attention_heads
  size_t default_max_positions = 2048;
};

constexpr std::array<Architecture, 4> kArchitectures = {
    {{.name = "LlamaForCausalLM", .model_type = "llama"},
     {.name = "MistralForCausalLM", .model_type = "mistral"},
     {.name = "Qwen2ForCausalLM",
      .model_type = "qwen2",
      .qkv_bias = Bias::kAlways,
      .output_bias = Bias::kNever,
      .mlp_bias = Bias::kNever,
      .has_window_switch = true,
      .default_kv_heads = 32,
      .default_max_positions = 32768},
     {.name = "Qwen3ForCausalLM",
      .model_type = "qwen3",
      .mlp_bias = Bias::kNever,
      .has_head_norms = true,
      .has_window_switch = true,
      .default_kv_heads = 32,
      .default_head_size = 128,
      .default_max_positions = 32768}}};

std::string SupportedNames(std::string_view Architecture::*name) {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    names += (names.empty() ? "(supported: " : ", ") + std::string(architecture.*name);
  }
  return names + ")";
}

// Refuses a model_type that contradicts `architectures`. transformers goes by the model_type.
void RefuseOtherModelType(const JsonFields& fields, const Architecture& architecture) {
  const std::string expected(architecture.model_type);
  const std::string model_type = fields.String("model_type", expected);
  if (model_type == expected) return;
  fields.Refuse("model_type", "is \"" + model_type + "\" (want \"" + expected +
                                  "\", because architectures names " +
                                  std::string(architecture.name) + ")");
}

// Returns the architecture that `architectures` names, or else the one that model_type names, or
// else Llama.
const Architecture& ReadArchitecture(const JsonFields& fields,
                                     std::span<const std::string_view> llama_names) {
  const std::string model_type = fields.String("model_type", "llama");
  const Json* const names = fields.Find("architectures");
  const bool is_one_name =
      names != nullptr && names->is_array() && names->size() == 1 && (*names)[0].is_string();
  std::string_view name;
  if (is_one_name) name = (*names)[0].get_ref<const std::string&>();
  if (std::find(llama_names.begin(), llama_names.end(), name) != llama_names.end()) {
    name = kArchitectures.front().name;
  }
  for (const Architecture& architecture : kArchitectures) {
    if (is_one_name ? name == architecture.name
                    : names == nullptr && model_type == architecture.model_type) {
      RefuseOtherModelType(fields, architecture);
      return architecture;
    }
  }
  if (names != nullptr) {
    fields.Refuse("architectures",
                  "is " + ShownJson(*names) + " " + SupportedNames(&Architecture::name));
  } else {
    fields.Refuse("model_type",
                  "is \"" + model_type + "\" " + SupportedNames(&Architecture::model_type));
  }
  return kArchitectures.front();
}

// Refuses a model whose rows do not see all rows before them.
void RefuseSlidingWindow(const JsonFields& fields, const Architecture& architecture,
                         size_t max_position_embeddings) {
  constexpr size_t kLargestWindow = std::numeric_limits<int64_t>::max();
  if (!architecture.has_window_switch) {
    const size_t window = fields.Whole("sliding_window", 0, kLargestWindow, 0);
    if (window != 0 && window < max_position_embeddings) {
      fields.Refuse("sliding_window",
                    "is " + std::to_string(window) +
                        " (supported: null, or at least max_position_embeddings)");
    }
    return;
  }
  if (fields.Boolean("use_sliding_window", false)) {
    constexpr size_t kDefaultWindow = 4096;
    const size_t window = fields.Whole("sliding_window", 0, kLargestWindow, kDefaultWindow);
    if (window < max_position_embeddings) {
      fields.Refuse("use_sliding_window",
                    "is true, with a sliding_window of " + std::to_string(window) +
                        " (supported: false, or a window of at least max_position_embeddings)");
    }
  }
  const Json* const layer_types = fields.Find("layer_types");
  if (layer_types == nullptr) return;
  const bool is_full = layer_types->is_array() &&
                       std::all_of(layer_types->begin(), layer_types->end(), [](const Json& type) {
                         return type.is_string() && type.get<std::string>() == "full_attention";
                       });
  if (!is_full) {
    fields.Refuse("layer_types", "is " + ShownJson(*layer_types) + " (supported: full_attention)");
  }
}

// Refuses settings that would change the computation and are not supported.
void RefuseUnsupported(const JsonFields& fields) {
  const std::string activation = fields.String("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fields.Refuse("hidden_act", "is \"" + activation + "\" (supported: silu)");
  }
  if (const Json* quantization = fields.Find("quantization_config")) {
    fields.Refuse("quantization_config",
                  "is " + ShownJson(*quantization) + " (quantized weights are not supported)");
  }
}

void RefusePartialRotation(const JsonFields& fields) {
  if (fields.Real("partial_rotary_factor", 0, kLargest, 1.0) != 1.0) {
    fields.Refuse("partial_rotary_factor", "is not 1 (partial rotation is not supported)");
  }
}

// Reads rope_theta and rope_scaling of transformers 4, or rope_parameters of transformers 5.
RopeDescription ReadRope(const JsonFields& fields) {
  RopeDescription rope;
  rope.theta = fields.Real("rope_theta", kSmallest, kLargest, 10000.0);
  RefusePartialRotation(fields);
  const bool is_new = fields.Find("rope_parameters") != nullptr;
  const std::optional<JsonFields> settings =
      fields.Object(is_new ? "rope_parameters" : "rope_scaling");
  if (!settings) return rope;
  rope.theta = settings->Real("rope_theta", kSmallest, kLargest, rope.theta);
  RefusePartialRotation(*settings);

  const std::string type_name = settings->Find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = settings->String(type_name, "default");
  if (type == "llama3") {
    Llama3RopeScaling scaling;
    scaling.factor = settings->Real("factor", 1, kLargest);
    scaling.low_freq_factor = settings->Real("low_freq_factor", kSmallest, kLargest);
    scaling.high_freq_factor = settings->Real("high_freq_factor", kSmallest, kLargest);
    scaling.original_max_position_embeddings =
        settings->Real("original_max_position_embeddings", 1, kLargest);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      settings->Refuse("high_freq_factor", "is " + ShownJson(scaling.high_freq_factor) +
                                               " (want more than low_freq_factor, " +
                                               ShownJson(scaling.low_freq_factor) + ")");
    }
    rope.scaling = scaling;
  } else if (type != "default") {
    settings->Refuse(type_name, "is \"" + type + "\" (supported: default, llama3)");
  }
  return rope;
}

AttentionDescription ReadAttention(const JsonFields& fields, const Architecture& architecture,
                                   size_t hidden_size) {
  const bool bias_setting = fields.Boolean("attention_bias", false);
  const auto has_bias = [&](Bias bias) {
    return bias == Bias::kAlways || (bias == Bias::kSetting && bias_setting);
  };
  AttentionDescription attention;
  attention.num_heads = fields.Whole("num_attention_heads", 1, 4096);
  attention.num_kv_heads = fields.Whole(
      "num_key_value_heads", 1, 4096,
      architecture.default_kv_heads != 0 ? architecture.default_kv_heads : attention.num_heads);
  attention.qkv_bias = has_bias(architecture.qkv_bias);
  attention.output_bias = has_bias(architecture.output_bias);
  attention.has_head_norms = architecture.has_head_norms;
  attention.rope = ReadRope(fields);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    fields.Refuse("num_key_value_heads", "is " + std::to_string(attention.num_kv_heads) +
                                             " (want a divisor of num_attention_heads, " +
                                             std::to_string(attention.num_heads) + ")");
  }
  size_t default_head_size = architecture.default_head_size;
  if (default_head_size == 0) {
    default_head_size = hidden_size / attention.num_heads;
    if (fields.Find("head_dim") == nullptr && hidden_size % attention.num_heads != 0) {
      fields.Refuse("hidden_size", "is " + std::to_string(hidden_size) +
                                       " (want a multiple of num_attention_heads, " +
                                       std::to_string(attention.num_heads) + ", or a head_dim)");
    }
  }
  attention.head_size = fields.Whole("head_dim", 1, 1024, default_head_size);
  if (attention.head_size == 0 || attention.head_size % 2 != 0) {
    fields.Refuse("head_dim", "is " + std::to_string(attention.head_size) +
                                  " (want an even number: rotary embedding turns pairs)");
  }
  return attention;
}

MlpDescription ReadMlp(const JsonFields& fields, const Architecture& architecture) {
  const bool bias_setting = fields.Boolean("mlp_bias", false);
  return {.inner_size = fields.Whole("intermediate_size", 1, 1 << 22),
          .has_bias = architecture.mlp_bias == Bias::kSetting && bias_setting};
}

// Reads one id or a list of ids.
std::vector<int32_t> ReadEndOfText(const JsonFields& fields, size_t vocabulary_size) {
  const std::string name = "eos_token_id";
  const Json* field = fields.Find(name);
  if (field == nullptr) return {};
  std::vector<int32_t> ids;
  const Json list = field->is_array() ? *field : Json::array({*field});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary_size) {
      fields.Refuse(name, "has " + ShownJson(id) + " (want token ids under vocab_size, " +
                              std::to_string(vocabulary_size) + ")");
      return {};
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

absl::StatusOr<Json> ReadObject(const std::filesystem::path& path) {
  TANDEM_ASSIGN_OR_RETURN(Json object, ReadJsonFile(path, JsonLimits()));
  if (!object.is_object()) return InvalidArgument(path.string() + ": is not a JSON object");
  return object;
}

}  // namespace

absl::StatusOr<ModelDescription> ModelDescription::Load(
    const std::filesystem::path& folder, std::span<const std::string_view> llama_names) {
  const std::filesystem::path path = folder / "config.json";
  TANDEM_ASSIGN_OR_RETURN(const Json object, ReadObject(path));
  absl::Status status;
  const JsonFields fields(object, path.string(), "", status);

  const Architecture& architecture = ReadArchitecture(fields, llama_names);
  ModelDescription model;
  model.vocabulary_size = fields.Whole("vocab_size", 1, 1 << 24);
  model.hidden_size = fields.Whole("hidden_size", 1, 1 << 20);
  model.num_layers = fields.Whole("num_hidden_layers", 1, 1024);
  model.attention = ReadAttention(fields, architecture, model.hidden_size);
  model.mlp = ReadMlp(fields, architecture);
  model.norm_eps = fields.Real("rms_norm_eps", kSmallest, 1, 1e-6);
  model.tied_embeddings = fields.Boolean("tie_word_embeddings", false);
  model.max_position_embeddings =
      fields.Whole("max_position_embeddings", 1, 1 << 26, architecture.default_max_positions);
  RefuseSlidingWindow(fields, architecture, model.max_position_embeddings);
  RefuseUnsupported(fields);

  const std::filesystem::path generation_path = folder / "generation_config.json";
  std::error_code ignored;
  if (status.ok() && std::filesystem::exists(generation_path, ignored)) {
    TANDEM_ASSIGN_OR_RETURN(const Json generation, ReadObject(generation_path));
    model.end_of_text_ids = ReadEndOfText(
        JsonFields(generation, generation_path.string(), "", status), model.vocabulary_size);
  }
  if (model.end_of_text_ids.empty()) {
    model.end_of_text_ids = ReadEndOfText(fields, model.vocabulary_size);
  }
  if (!status.ok()) return status;
  return model;
}

}  // namespace tandem
