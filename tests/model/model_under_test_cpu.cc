#include "common/status.h"
#include "tests/model/model_under_test.h"

namespace tandem::testing {

std::string WhyNoDevice() { return ""; }

absl::StatusOr<ModelUnderTest> LoadModelUnderTest(const std::filesystem::path& folder,
                                                  int num_threads, size_t num_caches,
                                                  size_t cache_rows) {
  ModelUnderTest loaded;
  loaded.threads = std::make_unique<ThreadPool>(num_threads);
  TANDEM_ASSIGN_OR_RETURN(loaded.model, LanguageModel::Load(folder, loaded.threads.get()));
  const ModelDescription& config = loaded.model->description();
  TANDEM_ASSIGN_OR_RETURN(
      loaded.pages,
      KvPagePool::Create(config, num_caches * HostKvMemory::Bytes(config, cache_rows)));
  return loaded;
}

std::vector<PathSetting> PathSettings() {
#if defined(TANDEM_ADDRESS_SANITIZER)
  // The embedded pair takes minutes with the sanitizer. All small models are used.
  constexpr size_t kFirst = 3;
#else
  constexpr size_t kFirst = 0;
#endif
  const std::vector<PathSetting> all = {
      {"tales_target_1", "tests/models/tales/target", 130, 1},
      {"tales_target_2", "tests/models/tales/target", 130, 2},
      {"tales_draft_2", "tests/models/tales/draft", 540, 2},
      {"f32_gqa_1", "tests/golden/model/f32_gqa_tied", 150, 1},
      {"f32_mqa_2", "tests/golden/model/f32_mqa_untied", 150, 2},
      {"bf16_everything_1", "tests/golden/model/bf16_everything_legacy", 150, 1},
      {"f16_odd_sizes_2", "tests/golden/model/f16_odd_sizes", 150, 2},
      {"bf16_qwen2_2", "tests/golden/model/bf16_qwen2_untied_legacy", 150, 2},
      {"f16_qwen3_odd_sizes_1", "tests/golden/model/f16_qwen3_odd_sizes_legacy", 150, 1}};
  return {all.begin() + kFirst, all.end()};
}

bool RunsLargeModels() { return true; }

std::vector<std::string> GoldenModels() {
  return {"f32_gqa_tied",
          "f32_mqa_untied",
          "f32_mha_attention_bias",
          "f32_head_dim_legacy",
          "f32_llama3_long",
          "f32_all_biases_sharded",
          "f32_mistral",
          "bf16_llama3",
          "bf16_untied_sharded",
          "bf16_everything_legacy",
          "f16_mlp_bias",
          "f16_odd_sizes",
          "f32_qwen2",
          "bf16_qwen2_untied_legacy",
          "f32_qwen3",
          "bf16_qwen3_attention_bias_sharded",
          "f16_qwen3_odd_sizes_legacy"};
}

double GoldenTolerance(const std::string&) { return 1e-5; }

}  // namespace tandem::testing
