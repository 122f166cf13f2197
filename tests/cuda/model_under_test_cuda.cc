#include "common/model/cuda/cuda_model.h"
#include "common/status.h"
#include "kernels/device/device.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {

namespace {

// Folder of the model whose activations are rounded. The others are compared with references.
constexpr char kRounded[] = "rounded";

}  // namespace

std::string WhyNoDevice() {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  return device.ok() ? "" : "skipped: no GPU: " + std::string(device.status().message());
}

absl::StatusOr<ModelUnderTest> LoadModelUnderTest(const std::filesystem::path& folder, int,
                                                  size_t num_caches, size_t cache_rows) {
  TANDEM_ASSIGN_OR_RETURN(
      auto model, CudaModel::Load(folder, {.max_context = cache_rows,
                                           .max_slots = num_caches,
                                           .spoil_freed_rows = true,
                                           .exact_activations = folder.filename() != kRounded}));
  ModelUnderTest loaded;
  TANDEM_ASSIGN_OR_RETURN(loaded.pages, model->TakePages());
  loaded.model = std::move(model);
  return loaded;
}

// The settings are as small as possible. Over the shim, a pass of one row takes a tenth of a second
// for the models of tests/golden, and only the default of a GPU is tested: the kernels' tests have
// both precisions.
std::vector<PathSetting> PathSettings() {
  static const TempDir folder;
  static const std::string exact = (folder / "exact").string();
  static const std::string rounded = (folder / kRounded).string();
  if (!std::filesystem::exists(exact)) {
    RandomModelSpec spec;
    spec.vocabulary_size = 16;
    spec.hidden_size = 8;
    spec.num_layers = 1;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.head_size = 4;
    spec.intermediate_size = 8;
    spec.dtype = DType::kBF16;
    WriteRandomModel(exact, spec);
    spec.head_size = 64;  // Attention takes the matrix units.
    WriteRandomModel(rounded, spec);
  }
  std::vector<PathSetting> settings = {{"rounded", rounded.c_str(), 140, 1}};
  if (RunsLargeModels()) settings.push_back({"exact", exact.c_str(), 140, 1});
  return settings;
}

bool RunsLargeModels() {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  return device.ok() && device->name != "SIMT shim";
}

// Returns the models whose sizes are all multiples of 8.
std::vector<std::string> GoldenModels() {
  return {"f32_gqa_tied",
          "f32_mha_attention_bias",
          "f32_llama3_long",
          "f32_mistral",
          "f32_all_biases_sharded",
          "bf16_llama3",
          "bf16_untied_sharded",
          "f16_mlp_bias",
          "f32_qwen2",
          "bf16_qwen2_untied_legacy",
          "f32_qwen3",
          "bf16_qwen3_attention_bias_sharded"};
}

// Keys and values have the type of the weights.
double GoldenTolerance(const std::string& model) {
  if (model.starts_with("bf16")) return 2e-2;
  return model.starts_with("f16") ? 2e-3 : 1e-5;
}

}  // namespace tandem::testing
