// Reads config.json and generation_config.json like a worker and like the router.
//
// The input is config.json (a chunk), and then generation_config.json. If nothing is left, there is
// no generation_config.json.
#include "common/model/language_model.h"
#include "common/model/model_description.h"
#include "services/router/server/target_folder.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_folder.h"
#include "tests/support/random_model.h"

namespace tandem::fuzz {
namespace {

// The folder has weights and a tokenizer, so that a configuration that fits them makes a model.
struct ModelFolder : InputFolder {
  ModelFolder() {
    testing::WriteRandomModel(path(), {.vocabulary_size = 8,
                                       .hidden_size = 4,
                                       .num_layers = 1,
                                       .num_heads = 2,
                                       .num_kv_heads = 1,
                                       .head_size = 2,
                                       .intermediate_size = 4,
                                       .max_position_embeddings = 16});
  }
};

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const fuzz::ModelFolder folder;
  static ThreadPool threads(1);
  fuzz::FuzzInput input(data, size);
  folder.Write("config.json", input.Chunk());
  const std::string_view generation_config = input.Rest();
  if (generation_config.empty()) {
    folder.Remove("generation_config.json");
  } else {
    folder.Write("generation_config.json", generation_config);
  }
  const auto config = ModelDescription::Load(folder.path());
  if (config.ok()) {
    fuzz::Check(config->attention.num_heads % config->attention.num_kv_heads == 0 &&
                    config->attention.head_size % 2 == 0,
                "the heads can be attended with");
    for (const int32_t id : config->end_of_text_ids) {
      fuzz::Check(id >= 0 && static_cast<size_t>(id) < config->vocabulary_size,
                  "ends of text are in the vocabulary");
    }
  }
  const auto model = LanguageModel::Load(folder.path(), &threads);
  fuzz::Check(config.ok() || !model.ok(), "a model has a configuration");
  const auto target = TargetFolder::Load(folder.path());
  if (target.ok()) {
    for (const int32_t id : target->end_of_text_ids) {
      fuzz::Check(id >= 0 && static_cast<size_t>(id) < target->tokenizer->num_entries(),
                  "the router's ends of text are in the vocabulary");
    }
  }
  return 0;
}
