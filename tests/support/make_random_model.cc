// Writes a random model, or random heads for one, from the command line; see --help.
#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"

namespace {

// Writes heads for a model of these sizes.
void WriteHeads(const std::string& folder, const tandem::testing::RandomModelSpec& model,
                tandem::testing::RandomHeadsSpec heads) {
  heads.hidden_size = model.hidden_size;
  heads.vocabulary_size = model.vocabulary_size;
  heads.shares_output = heads.uses_target_output;
  heads.output_scale = model.embedding_scale;
  heads.dtype = model.dtype;
  heads.seed = model.seed;
  tandem::testing::WriteRandomHeads(folder, heads);
}

// Writes a layer of EAGLE for a model of these sizes.
void WriteEagle(const std::string& folder, const tandem::testing::RandomModelSpec& model,
                tandem::testing::RandomEagleSpec eagle) {
  eagle.hidden_size = model.hidden_size;
  eagle.vocabulary_size = model.vocabulary_size;
  eagle.num_heads = model.num_heads;
  eagle.num_kv_heads = model.num_kv_heads;
  eagle.head_size = model.head_size;
  eagle.intermediate_size = model.intermediate_size;
  eagle.dtype = model.dtype;
  eagle.output_scale = model.embedding_scale;
  eagle.seed = model.seed;
  tandem::testing::WriteRandomEagle(folder, eagle);
}

// The drafters that can be written in place of a model.
struct Drafters {
  tandem::testing::RandomHeadsSpec heads = {.num_heads = 0};
  tandem::testing::RandomEagleSpec eagle;
  bool writes_eagle = false;
  std::vector<size_t> skipped_layers;
  size_t look_ahead_rows = 0;
};

void AddDrafters(CLI::App& app, Drafters& drafters) {
  app.add_option(
      "--draft-heads", drafters.heads.num_heads,
      "Writes this many Medusa drafters.heads for a model of these sizes, in place of the model");
  app.add_flag("--eagle", drafters.writes_eagle,
               "Writes a layer of EAGLE for a model of these sizes, in place of the model");
  app.add_flag("--eagle3", drafters.eagle.is_third, "With --eagle: the layer is one of EAGLE-3");
  app.add_option("--draft-vocabulary", drafters.eagle.truncated_vocabulary_size,
                 "With --eagle3: number of tokens that the layer knows");
  app.add_option("--layer-ids", drafters.eagle.layer_ids,
                 "With --eagle3: layers of the target to read");
  app.add_option("--skipped-layers", drafters.skipped_layers,
                 "Writes a drafter that leaves these layers of such a model out");
  app.add_option("--look-ahead", drafters.look_ahead_rows,
                 "Writes this many look-ahead embeddings for such a model");
  app.add_flag("--target-output", drafters.heads.uses_target_output,
               "The draft heads use the model's own output product");
}

// Returns false if none was asked for.
bool WriteDrafter(const std::string& folder, const tandem::testing::RandomModelSpec& model,
                  Drafters& drafters) {
  if (!drafters.skipped_layers.empty()) {
    tandem::testing::WriteSkippedLayers(folder, drafters.skipped_layers, model.num_layers);
  } else if (drafters.look_ahead_rows > 0) {
    tandem::testing::WriteRandomLookAhead(folder, {.hidden_size = model.hidden_size,
                                                   .num_rows = drafters.look_ahead_rows,
                                                   .dtype = model.dtype,
                                                   .deviation = model.embedding_scale,
                                                   .seed = model.seed});
  } else if (drafters.writes_eagle) {
    drafters.eagle.has_output = !drafters.heads.uses_target_output;
    WriteEagle(folder, model, drafters.eagle);
  } else if (drafters.heads.num_heads > 0) {
    WriteHeads(folder, model, drafters.heads);
  } else {
    return false;
  }
  return true;
}

void CopyTokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using tandem::DType;
  tandem::testing::RandomModelSpec spec;
  Drafters drafters;
  std::string folder, tokenizer_from;

  CLI::App app("Writes a model folder with random weights.");
  app.add_option("folder", folder, "Folder to make")->required();
  // The shape is set as soon as the parser sees this option. Other options change the shape in any
  // order.
  app.add_option_function<std::string>(
         "--shape",
         [&](const std::string& shape) {
           spec = shape == "1b" ? tandem::testing::Llama1BShape() : tandem::testing::Llama3BShape();
         },
         "Shape of Llama-3.2: 1b or 3b")
      ->check(CLI::IsMember({"1b", "3b"}))
      ->trigger_on_parse();
  using tandem::testing::RandomArchitecture;
  app.add_option("--architecture", spec.architecture)
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, RandomArchitecture>{{"llama", RandomArchitecture::kLlama},
                                                    {"qwen2", RandomArchitecture::kQwen2},
                                                    {"qwen3", RandomArchitecture::kQwen3}}));
  app.add_option("--tokenizer-from", tokenizer_from,
                 "Folder whose tokenizer is copied; its special tokens must be its last two ids");
  app.add_option("--vocabulary-size", spec.vocabulary_size);
  app.add_option("--hidden-size", spec.hidden_size);
  app.add_option("--layers", spec.num_layers);
  app.add_option("--heads", spec.num_heads);
  app.add_option("--kv-heads", spec.num_kv_heads);
  app.add_option("--head-size", spec.head_size);
  app.add_option("--intermediate-size", spec.intermediate_size);
  app.add_option("--max-positions", spec.max_position_embeddings);
  app.add_option("--rope-theta", spec.rope_theta);
  app.add_flag("--untied{false}", spec.tied_embeddings, "A separate lm_head");
  app.add_flag("--attention-bias", spec.attention_bias);
  app.add_flag("--mlp-bias", spec.mlp_bias);
  app.add_option("--dtype", spec.dtype)
      ->transform(CLI::CheckedTransformer(std::map<std::string, DType>{
          {"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}}));
  app.add_option("--embedding-scale", spec.embedding_scale, "Larger: sharper distributions");
  app.add_option("--seed", spec.seed);
  app.add_option("--shards", spec.num_shards);
  AddDrafters(app, drafters);
  CLI11_PARSE(app, argc, argv);

  try {
    if (WriteDrafter(folder, spec, drafters)) return 0;
    tandem::testing::WriteRandomModel(folder, spec);
    if (!tokenizer_from.empty()) CopyTokenizer(tokenizer_from, folder);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
