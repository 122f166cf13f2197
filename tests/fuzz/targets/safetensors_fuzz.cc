// Reads weight files: headers, offsets, the index of shards, and the tensors that a model takes.
//
// The input begins with a byte. If it is odd, the index (a chunk) and the shard "a.safetensors"
// follow. If it is even, model.safetensors follows.
#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/checkpoint/safetensors.h"
#include "common/model/model_weights.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_folder.h"

namespace tandem::fuzz {
namespace {

// Returns the smallest possible model, so that a small file can hold all of it.
ModelDescription TinyConfig() {
  ModelDescription config;
  config.vocabulary_size = 3;
  config.hidden_size = 2;
  config.mlp.inner_size = 1;
  config.num_layers = 1;
  config.attention.num_heads = 1;
  config.attention.num_kv_heads = 1;
  config.attention.head_size = 2;
  config.max_position_embeddings = 4;
  config.tied_embeddings = true;
  return config;
}

void CheckTensors(const Safetensors& file) {
  const std::string_view bytes = file.file().bytes();
  for (const auto& [name, tensor] : file.tensors()) {
    const auto* data = static_cast<const char*>(tensor.data);
    Check(data >= bytes.data() && tensor.bytes <= bytes.size() &&
              static_cast<size_t>(data - bytes.data()) <= bytes.size() - tensor.bytes,
          "tensor " + name + " lies in its file");
  }
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const fuzz::InputFolder folder;
  fuzz::FuzzInput input(data, size);
  if (input.Byte() % 2 == 1) {
    folder.Remove("model.safetensors");
    folder.Write("model.safetensors.index.json", input.Chunk());
    folder.Write("a.safetensors", input.Rest());
  } else {
    folder.Write("model.safetensors", input.Rest());
    const auto file = Safetensors::Open(folder.path() / "model.safetensors");
    if (file.ok()) fuzz::CheckTensors(**file);
  }
  const auto checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) return 0;
  fuzz::Check((*checkpoint)->CheckWhole().ok(), "the files are as long as they were");
  const auto weights = ModelWeights::Load(**checkpoint, fuzz::TinyConfig());
  if (weights.ok()) {
    fuzz::Check(weights->layers.size() == 1 && weights->final_norm.size() == 2,
                "the weights have the configuration's sizes");
  }
  return 0;
}
