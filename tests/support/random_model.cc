#include "tests/support/random_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/support/random_tensors.h"

namespace tandem::testing {
namespace {

using Json = nlohmann::ordered_json;

std::vector<RandomTensor> TensorsOf(const RandomModelSpec& spec) {
  const size_t hidden = spec.hidden_size;
  const size_t query_size = spec.num_heads * spec.head_size;
  const size_t kv_size = spec.num_kv_heads * spec.head_size;
  std::vector<RandomTensor> tensors;
  const auto norm = [&](const std::string& name, size_t size) {
    tensors.push_back({name + ".weight", {size}, 1.0, 0.1});
  };
  const auto linear = [&](const std::string& name, size_t out, size_t in, bool bias) {
    const double deviation = 1.0 / std::sqrt(static_cast<double>(in));
    tensors.push_back({name + ".weight", {out, in}, 0.0, deviation});
    if (bias) tensors.push_back({name + ".bias", {out}, 0.0, deviation});
  };

  tensors.push_back(
      {"model.embed_tokens.weight", {spec.vocabulary_size, hidden}, 0.0, spec.embedding_scale});
  const bool is_qwen2 = spec.architecture == RandomArchitecture::kQwen2;
  const bool qkv_bias = is_qwen2 || spec.attention_bias;
  for (size_t layer = 0; layer < spec.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    norm(prefix + "input_layernorm", hidden);
    linear(prefix + "self_attn.q_proj", query_size, hidden, qkv_bias);
    linear(prefix + "self_attn.k_proj", kv_size, hidden, qkv_bias);
    linear(prefix + "self_attn.v_proj", kv_size, hidden, qkv_bias);
    if (spec.architecture == RandomArchitecture::kQwen3) {
      norm(prefix + "self_attn.q_norm", spec.head_size);
      norm(prefix + "self_attn.k_norm", spec.head_size);
    }
    linear(prefix + "self_attn.o_proj", hidden, query_size, spec.attention_bias && !is_qwen2);
    norm(prefix + "post_attention_layernorm", hidden);
    linear(prefix + "mlp.gate_proj", spec.intermediate_size, hidden, spec.mlp_bias);
    linear(prefix + "mlp.up_proj", spec.intermediate_size, hidden, spec.mlp_bias);
    linear(prefix + "mlp.down_proj", hidden, spec.intermediate_size, spec.mlp_bias);
  }
  norm("model.norm", hidden);
  if (!spec.tied_embeddings) {
    tensors.push_back(
        {"lm_head.weight", {spec.vocabulary_size, hidden}, 0.0, spec.embedding_scale});
  }
  return tensors;
}

void WriteJson(const std::filesystem::path& path, const Json& json) {
  std::ofstream file = CreateFile(path);
  file << json.dump(1) << '\n';
  CloseFile(file, path);
}

void WriteWeights(const std::filesystem::path& folder, const RandomModelSpec& spec) {
  const std::vector<RandomTensor> tensors = TensorsOf(spec);
  if (spec.num_shards <= 1) {
    WriteRandomTensors(folder / "model.safetensors", tensors, spec.dtype, spec.seed);
    return;
  }
  Json weight_map;
  size_t total_bytes = 0;
  for (size_t shard = 0; shard < spec.num_shards; ++shard) {
    const auto pad = [](size_t number) {
      const std::string digits = std::to_string(number);
      return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
    };
    const std::string name =
        "model-" + pad(shard + 1) + "-of-" + pad(spec.num_shards) + ".safetensors";
    const size_t begin = tensors.size() * shard / spec.num_shards;
    const size_t end = tensors.size() * (shard + 1) / spec.num_shards;
    const auto part = std::span(tensors).subspan(begin, end - begin);
    WriteRandomTensors(folder / name, part, spec.dtype, spec.seed);
    for (const RandomTensor& tensor : part) {
      weight_map[tensor.name] = name;
      total_bytes += tensor.num_values() * SizeOf(spec.dtype);
    }
  }
  WriteJson(folder / "model.safetensors.index.json",
            {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}});
}

std::string Utf8(uint32_t code_point) {  // below 0x800
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3F))};
}

// Returns GPT-2's printable stand-in for each byte.
std::array<std::string, 256> ByteEntries() {
  std::array<std::string, 256> entries;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    entries[byte] = Utf8(printable ? byte : next++);
  }
  return entries;
}

// Returns the order in which bytes get entries. Letters come first, so that a tiny vocabulary is a,
// b, c, …
std::vector<uint8_t> ByteOrder(size_t num_entries) {
  std::vector<uint8_t> order;
  if (num_entries < 256) {
    for (int byte = 'a'; byte <= 'z'; ++byte) order.push_back(static_cast<uint8_t>(byte));
    order.push_back(' ');
  }
  const std::vector<uint8_t> first = order;
  for (int byte = 0; byte < 256; ++byte) {
    if (std::find(first.begin(), first.end(), byte) == first.end()) {
      order.push_back(static_cast<uint8_t>(byte));
    }
  }
  if (num_entries < order.size()) order.resize(num_entries);
  return order;
}

constexpr const char* kBeginOfText = "<|begin_of_text|>";
constexpr const char* kEndOfText = "<|end_of_text|>";

void WriteTokenizer(const std::filesystem::path& folder, const RandomModelSpec& spec) {
  const size_t num_entries = spec.vocabulary_size - 2;
  const std::array<std::string, 256> bytes = ByteEntries();
  std::ostringstream entries;  // text by hand, because nlohmann's ordered map searches linearly
  size_t id = 0;
  for (uint8_t byte : ByteOrder(num_entries)) {
    entries << (id == 0 ? "" : ",") << Json(bytes[byte]).dump() << ':' << id;
    ++id;
  }
  for (; id < num_entries; ++id) entries << ",\"Ġw" << id << "\":" << id;

  const auto added = [](size_t token_id, const char* content) {
    return Json{{"id", token_id},  {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json begin = {{"SpecialToken", {{"id", kBeginOfText}, {"type_id", 0}}}};
  const Json sequence_a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json sequence_b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  Json tokenizer;
  tokenizer["version"] = "1.0";
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = nullptr;
  tokenizer["added_tokens"] = Json::array(
      {added(spec.vocabulary_size - 2, kBeginOfText), added(spec.vocabulary_size - 1, kEndOfText)});
  tokenizer["normalizer"] = nullptr;
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       Json::array(
           {{{"type", "Split"},
             {"pattern",
              {{"Regex", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                         R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            byte_level})}};
  tokenizer["post_processor"] = {{"type", "TemplateProcessing"},
                                 {"single", Json::array({begin, sequence_a})},
                                 {"pair", Json::array({begin, sequence_a, sequence_b})},
                                 {"special_tokens",
                                  {{kBeginOfText,
                                    {{"id", kBeginOfText},
                                     {"ids", Json::array({spec.vocabulary_size - 2})},
                                     {"tokens", Json::array({kBeginOfText})}}}}}};
  tokenizer["decoder"] = byte_level;
  tokenizer["model"] = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false}};
  // The vocabulary is inserted as text before the last two closing braces.
  std::string text = tokenizer.dump();
  text.resize(text.size() - 2);
  const std::filesystem::path path = folder / "tokenizer.json";
  std::ofstream file = CreateFile(path);
  file << text << ",\"vocab\":{" << entries.str() << "},\"merges\":[]}}\n";
  CloseFile(file, path);

  WriteJson(folder / "tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                               {"bos_token", kBeginOfText},
                                               {"eos_token", kEndOfText},
                                               {"model_max_length", spec.max_position_embeddings},
                                               {"clean_up_tokenization_spaces", false}});
}

// Returns `architectures` and model_type of config.json.
std::pair<const char*, const char*> NamesOf(RandomArchitecture architecture) {
  switch (architecture) {
    case RandomArchitecture::kLlama:
      return {"LlamaForCausalLM", "llama"};
    case RandomArchitecture::kQwen2:
      return {"Qwen2ForCausalLM", "qwen2"};
    case RandomArchitecture::kQwen3:
      return {"Qwen3ForCausalLM", "qwen3"};
  }
  throw std::runtime_error("no such architecture");
}

void WriteConfig(const std::filesystem::path& folder, const RandomModelSpec& spec) {
  const size_t begin = spec.vocabulary_size - 2;
  const size_t end = spec.vocabulary_size - 1;
  const char* torch_dtype = spec.dtype == DType::kF32    ? "float32"
                            : spec.dtype == DType::kBF16 ? "bfloat16"
                                                         : "float16";
  const auto [architecture, model_type] = NamesOf(spec.architecture);
  WriteJson(folder / "config.json", {{"architectures", Json::array({architecture})},
                                     {"attention_bias", spec.attention_bias},
                                     {"attention_dropout", 0.0},
                                     {"bos_token_id", begin},
                                     {"eos_token_id", end},
                                     {"head_dim", spec.head_size},
                                     {"hidden_act", "silu"},
                                     {"hidden_size", spec.hidden_size},
                                     {"initializer_range", 0.02},
                                     {"intermediate_size", spec.intermediate_size},
                                     {"max_position_embeddings", spec.max_position_embeddings},
                                     {"mlp_bias", spec.mlp_bias},
                                     {"model_type", model_type},
                                     {"num_attention_heads", spec.num_heads},
                                     {"num_hidden_layers", spec.num_layers},
                                     {"num_key_value_heads", spec.num_kv_heads},
                                     {"rms_norm_eps", 1e-5},
                                     {"rope_scaling", nullptr},
                                     {"rope_theta", spec.rope_theta},
                                     {"tie_word_embeddings", spec.tied_embeddings},
                                     {"torch_dtype", torch_dtype},
                                     {"vocab_size", spec.vocabulary_size}});
  WriteJson(folder / "generation_config.json",
            {{"bos_token_id", begin}, {"eos_token_id", end}, {"do_sample", true}});
}

}  // namespace

RandomModelSpec Llama1BShape() {
  RandomModelSpec spec;
  spec.vocabulary_size = 128256;
  spec.hidden_size = 2048;
  spec.num_layers = 16;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_size = 64;
  spec.intermediate_size = 8192;
  spec.max_position_embeddings = 8192;  // less than the real 131072, so that tests reserve less
  spec.rope_theta = 500000.0;
  spec.dtype = DType::kBF16;
  spec.embedding_scale = 0.02;
  return spec;
}

RandomModelSpec Llama3BShape() {
  RandomModelSpec spec = Llama1BShape();
  spec.hidden_size = 3072;
  spec.num_layers = 28;
  spec.num_heads = 24;
  spec.head_size = 128;
  return spec;
}

void WriteRandomModel(const std::filesystem::path& folder, const RandomModelSpec& spec) {
  if (spec.vocabulary_size < 3) throw std::runtime_error("vocabulary_size must be at least 3");
  std::filesystem::create_directories(folder);
  WriteConfig(folder, spec);
  WriteTokenizer(folder, spec);
  WriteWeights(folder, spec);
}

}  // namespace tandem::testing
