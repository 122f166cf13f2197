#include "common/model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "common/model/json_file.h"
#include "common/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

std::string Shown(const Json& value) {
  constexpr size_t kLongest = 80;
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "…";
}

std::string Shown(double value) { return Json(value).dump(); }

// The fields of one JSON object. A missing field and null are one: Hugging Face writes null for
// "not set". The first fault is kept, later reads give the default.
class Fields {
 public:
  // `prefix` goes before field names in messages.
  Fields(const Json& object, std::string file, std::string prefix, absl::Status& status)
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)), status_(status) {}

  const Json* Find(const std::string& name) const {
    const auto field = object_.find(name);
    return field == object_.end() || field->is_null() ? nullptr : &*field;
  }

  // A whole number in [min, max]; required where there is no default.
  size_t Whole(const std::string& name, size_t min, size_t max,
               std::optional<size_t> default_value = std::nullopt) const {
    const Json* field = Find(name);
    if (field == nullptr) {
      if (!default_value) Refuse(name, "is missing");
      return default_value.value_or(min);
    }
    const std::string want =
        "(want a whole number from " + std::to_string(min) + " to " + std::to_string(max) + ")";
    if (!field->is_number_unsigned() || field->get<uint64_t>() < min ||
        field->get<uint64_t>() > max) {
      Refuse(name, "is " + Shown(*field) + " " + want);
      return min;
    }
    return field->get<size_t>();
  }

  // A finite number in [min, max].
  double Real(const std::string& name, double min, double max,
              std::optional<double> default_value = std::nullopt) const {
    const Json* field = Find(name);
    if (field == nullptr) {
      if (!default_value) Refuse(name, "is missing");
      return default_value.value_or(min);
    }
    const double value =
        field->is_number() ? field->get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(value >= min && value <= max)) {
      Refuse(name, "is " + Shown(*field) + " (want a number from " + Shown(min) + " to " +
                       Shown(max) + ")");
      return min;
    }
    return value;
  }

  bool Boolean(const std::string& name, bool default_value) const {
    const Json* field = Find(name);
    if (field == nullptr) return default_value;
    if (!field->is_boolean()) {
      Refuse(name, "is " + Shown(*field) + " (want true or false)");
      return default_value;
    }
    return field->get<bool>();
  }

  std::string String(const std::string& name, const std::string& default_value) const {
    const Json* field = Find(name);
    if (field == nullptr) return default_value;
    if (!field->is_string()) {
      Refuse(name, "is " + Shown(*field) + " (want a string)");
      return default_value;
    }
    return field->get<std::string>();
  }

  // The fields of an object within; null when it is not set.
  std::optional<Fields> Object(const std::string& name) const {
    const Json* field = Find(name);
    if (field == nullptr) return std::nullopt;
    if (!field->is_object()) {
      Refuse(name, "is " + Shown(*field) + " (want an object)");
      return std::nullopt;
    }
    return Fields(*field, file_, prefix_ + name + ".", status_);
  }

  void Refuse(const std::string& name, const std::string& why) const {
    if (status_.ok()) status_ = InvalidArgument(file_ + ": " + prefix_ + name + " " + why);
  }

 private:
  const Json& object_;
  std::string file_;
  std::string prefix_;
  absl::Status& status_;
};

constexpr double kLargest = 1e30;
constexpr double kSmallest = 1e-30;

// A setting that would change the computation and is not supported must be off.
void RefuseUnsupported(const Fields& fields, size_t max_position_embeddings) {
  constexpr std::array<std::string_view, 2> kArchitectures = {"LlamaForCausalLM",
                                                              "MistralForCausalLM"};
  const std::string supported = "(supported: LlamaForCausalLM, MistralForCausalLM)";
  const std::string model_type = fields.String("model_type", "llama");
  if (const Json* architectures = fields.Find("architectures")) {
    const bool is_supported =
        architectures->is_array() && architectures->size() == 1 &&
        std::any_of(kArchitectures.begin(), kArchitectures.end(), [&](std::string_view name) {
          return (*architectures)[0] == std::string(name);
        });
    if (!is_supported) {
      fields.Refuse("architectures", "is " + Shown(*architectures) + " " + supported);
    }
  } else if (model_type != "llama" && model_type != "mistral") {
    fields.Refuse("model_type", "is \"" + model_type + "\" (supported: llama, mistral)");
  }

  const std::string activation = fields.String("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fields.Refuse("hidden_act", "is \"" + activation + "\" (supported: silu)");
  }
  if (const Json* quantization = fields.Find("quantization_config")) {
    fields.Refuse("quantization_config",
                  "is " + Shown(*quantization) + " (quantized weights are not supported)");
  }
  const size_t window = fields.Whole("sliding_window", 0, std::numeric_limits<int64_t>::max(), 0);
  if (window != 0 && window < max_position_embeddings) {
    fields.Refuse("sliding_window", "is " + std::to_string(window) +
                                        " (supported: null, or at least max_position_embeddings)");
  }
}

void RefusePartialRotation(const Fields& fields) {
  if (fields.Real("partial_rotary_factor", 0, kLargest, 1.0) != 1.0) {
    fields.Refuse("partial_rotary_factor", "is not 1 (partial rotation is not supported)");
  }
}

// rope_theta and rope_scaling of transformers 4, rope_parameters of transformers 5.
void ReadRope(const Fields& fields, ModelConfig& config) {
  config.rope_theta = fields.Real("rope_theta", kSmallest, kLargest, 10000.0);
  RefusePartialRotation(fields);
  const bool is_new = fields.Find("rope_parameters") != nullptr;
  const std::optional<Fields> rope = fields.Object(is_new ? "rope_parameters" : "rope_scaling");
  if (!rope) return;
  config.rope_theta = rope->Real("rope_theta", kSmallest, kLargest, config.rope_theta);
  RefusePartialRotation(*rope);

  const std::string type_name = rope->Find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = rope->String(type_name, "default");
  if (type == "llama3") {
    Llama3RopeScaling scaling;
    scaling.factor = rope->Real("factor", 1, kLargest);
    scaling.low_freq_factor = rope->Real("low_freq_factor", kSmallest, kLargest);
    scaling.high_freq_factor = rope->Real("high_freq_factor", kSmallest, kLargest);
    scaling.original_max_position_embeddings =
        rope->Real("original_max_position_embeddings", 1, kLargest);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      rope->Refuse("high_freq_factor", "is " + Shown(scaling.high_freq_factor) +
                                           " (want more than low_freq_factor, " +
                                           Shown(scaling.low_freq_factor) + ")");
    }
    config.rope_scaling = scaling;
  } else if (type != "default") {
    rope->Refuse(type_name, "is \"" + type + "\" (supported: default, llama3)");
  }
}

// One id or a list of them.
std::vector<int32_t> ReadEndOfText(const Fields& fields, size_t vocabulary_size) {
  const std::string name = "eos_token_id";
  const Json* field = fields.Find(name);
  if (field == nullptr) return {};
  std::vector<int32_t> ids;
  const Json list = field->is_array() ? *field : Json::array({*field});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary_size) {
      fields.Refuse(name, "has " + Shown(id) + " (want token ids under vocab_size, " +
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

absl::StatusOr<ModelConfig> ModelConfig::Load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  TANDEM_ASSIGN_OR_RETURN(const Json object, ReadObject(path));
  absl::Status status;
  const Fields fields(object, path.string(), "", status);

  // Defaults of optional fields are those of transformers' LlamaConfig.
  ModelConfig config;
  config.vocabulary_size = fields.Whole("vocab_size", 1, 1 << 24);
  config.hidden_size = fields.Whole("hidden_size", 1, 1 << 20);
  config.intermediate_size = fields.Whole("intermediate_size", 1, 1 << 22);
  config.num_layers = fields.Whole("num_hidden_layers", 1, 1024);
  config.num_heads = fields.Whole("num_attention_heads", 1, 4096);
  config.num_kv_heads = fields.Whole("num_key_value_heads", 1, 4096, config.num_heads);
  config.max_position_embeddings = fields.Whole("max_position_embeddings", 1, 1 << 26, 2048);
  config.rms_norm_eps = fields.Real("rms_norm_eps", kSmallest, 1, 1e-6);
  config.attention_bias = fields.Boolean("attention_bias", false);
  config.mlp_bias = fields.Boolean("mlp_bias", false);
  config.tied_embeddings = fields.Boolean("tie_word_embeddings", false);
  RefuseUnsupported(fields, config.max_position_embeddings);
  ReadRope(fields, config);

  if (status.ok() && config.num_heads % config.num_kv_heads != 0) {
    fields.Refuse("num_key_value_heads", "is " + std::to_string(config.num_kv_heads) +
                                             " (want a divisor of num_attention_heads, " +
                                             std::to_string(config.num_heads) + ")");
  }
  if (status.ok() && fields.Find("head_dim") == nullptr &&
      config.hidden_size % config.num_heads != 0) {
    fields.Refuse("hidden_size", "is " + std::to_string(config.hidden_size) +
                                     " (want a multiple of num_attention_heads, " +
                                     std::to_string(config.num_heads) + ", or a head_dim)");
  }
  config.head_size = fields.Whole("head_dim", 1, 1024, config.hidden_size / config.num_heads);
  if (status.ok() && (config.head_size == 0 || config.head_size % 2 != 0)) {
    fields.Refuse("head_dim", "is " + std::to_string(config.head_size) +
                                  " (want an even number: rotary embedding turns pairs)");
  }

  const std::filesystem::path generation_path = folder / "generation_config.json";
  std::error_code ignored;
  if (status.ok() && std::filesystem::exists(generation_path, ignored)) {
    TANDEM_ASSIGN_OR_RETURN(const Json generation, ReadObject(generation_path));
    config.end_of_text_ids = ReadEndOfText(Fields(generation, generation_path.string(), "", status),
                                           config.vocabulary_size);
  }
  if (config.end_of_text_ids.empty()) {
    config.end_of_text_ids = ReadEndOfText(fields, config.vocabulary_size);
  }
  if (!status.ok()) return status;
  return config;
}

}  // namespace tandem
