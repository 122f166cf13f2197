// Loads heads for a target, and has them guess if they fit.
//
// The input is config.json (a chunk), and then model.safetensors.
#include <vector>

#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_folder.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::fuzz {
namespace {

constexpr int32_t kVocabularySize = 8;

struct TargetFolder {
  TargetFolder() {
    testing::WriteRandomModel(folder.path(), {.vocabulary_size = kVocabularySize,
                                              .hidden_size = 4,
                                              .num_layers = 2,
                                              .num_heads = 2,
                                              .num_kv_heads = 1,
                                              .head_size = 2,
                                              .intermediate_size = 4,
                                              .max_position_embeddings = 64});
  }
  testing::TempDir folder;
};

// Guesses after a text of three tokens, and checks the tree.
void GuessWith(LanguageModel& model) {
  const KvShape shape = model.kv_shape();
  auto pages = KvPagePool::Create(shape, HostKvMemory::Bytes(shape, 64));
  Check(pages.ok(), "a page fits into its own bytes");
  KvCache cache(pages->get(), 64);
  const std::vector<int32_t> text = {1, 5, 2};
  const ForwardItem item = {.cache = &cache, .token_ids = text, .parents = {}, .num_logits = 1};
  if (!model.Forward({&item, 1}).ok()) return;
  SelfDrafter& heads = *model.self_drafter();
  heads.KeepFeature(0, 0);
  std::vector<GuessOrder> orders(1);
  orders[0].text = {&cache, text};
  orders[0].next_token_id = 3;
  orders[0].limits = {.depth = 3, .nodes = 6};
  if (!heads.Propose(orders).ok()) return;
  const GuessTree& tree = orders[0].tree;
  Check(tree.token_ids.size() <= 6 && tree.parents.size() == tree.token_ids.size() &&
            tree.chances.size() == tree.token_ids.size(),
        "a tree has at most the nodes of its order");
  for (size_t i = 0; i < tree.token_ids.size(); ++i) {
    Check(tree.token_ids[i] >= 0 && tree.token_ids[i] < kVocabularySize, "guesses are tokens");
    Check(tree.parents[i] >= -1 && tree.parents[i] < static_cast<int32_t>(i),
          "a parent comes before its children");
    Check(tree.chances[i] > 0 && tree.chances[i] <= 1, "a chance is in (0, 1]");
  }
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const fuzz::TargetFolder target;
  static const fuzz::InputFolder heads;
  static ThreadPool threads(1);
  fuzz::FuzzInput input(data, size);
  heads.Write("config.json", input.Chunk());
  heads.Write("model.safetensors", input.Rest());
  const auto model = LanguageModel::Load(target.folder.path(), &threads, heads.path());
  if (!model.ok()) return 0;
  fuzz::Check((*model)->self_drafter() != nullptr, "a model with heads has a drafter");
  fuzz::GuessWith(**model);
  return 0;
}
