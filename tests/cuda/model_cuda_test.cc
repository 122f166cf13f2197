// Tests of a model that only concern the GPU: memory, blocks of rows, and agreement with the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/cuda/cuda_model.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

class ModelCudaTest : public ::testing::Test {
 protected:
  static constexpr size_t kBlockRows = 512;  // passes are cut
  static constexpr size_t kContext = kBlockRows + 128;

  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    Load(Spec());
  }

  static testing::RandomModelSpec Spec() {
    testing::RandomModelSpec spec;
    spec.vocabulary_size = 99;
    spec.hidden_size = 16;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.intermediate_size = 24;
    spec.embedding_scale = 2;
    spec.rope_theta = 500;
    spec.max_position_embeddings = kContext;
    return spec;
  }

  void Load(const testing::RandomModelSpec& spec) {
    cuda_pages_.reset();
    testing::WriteRandomModel(folder_.path(), spec);
    cpu_ = *LanguageModel::Load(folder_.path(), &threads_);
    cpu_pages_ = *KvPagePool::Create(cpu_->description(),
                                     4 * HostKvMemory::Bytes(cpu_->description(), kContext));
    cuda_ = *CudaModel::Load(
        folder_.path(), {.max_slots = 4, .max_block_rows = kBlockRows, .spoil_freed_rows = true});
    cuda_pages_ = *cuda_->TakePages();
  }

  std::vector<int32_t> Tokens(size_t count, size_t seed) const {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<int32_t>((i * i * 31 + (seed + 3) * (i + 1) * 17) % 99);
    }
    return ids;
  }

  // Returns the logits of a pass of the model on the GPU.
  std::vector<std::vector<float>> Forward(const std::vector<ForwardItem>& items) {
    const auto logits = cuda_->Forward(items);
    EXPECT_TRUE(logits.ok()) << logits.status();
    std::vector<std::vector<float>> rows;
    for (size_t row = 0; row < logits->rows; ++row) {
      rows.emplace_back(logits->row(row), logits->row(row) + 99);
    }
    return rows;
  }

  static void ExpectNear(const LogitsView& got, const LogitsView& want, size_t size) {
    ASSERT_EQ(got.rows, want.rows);
    for (size_t row = 0; row < got.rows; ++row) {
      for (size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(got.row(row)[i], want.row(row)[i], 1e-3) << "row " << row << " token " << i;
      }
    }
  }

  testing::TempDir folder_;
  ThreadPool threads_{1};
  std::unique_ptr<LanguageModel> cpu_;
  std::unique_ptr<KvPagePool> cpu_pages_;
  std::unique_ptr<CudaModel> cuda_;
  std::unique_ptr<KvPagePool> cuda_pages_;
};

TEST_F(ModelCudaTest, BlocksOfRowsGiveTheLogitsOfTheCpuWithAndWithoutHeadNorms) {
  // A tree lies between two prompts, and the first prompt is longer than a block. It wants more
  // rows of logits than a block has, so blocks are shorter. The last block has rows of all three.
  const std::vector<int32_t> ids = Tokens(kBlockRows + 44, 1);
  const std::vector<int32_t> tree = Tokens(5, 2);
  const std::vector<int32_t> parents = {-1, 0, 0, 2, 1};
  const std::vector<int32_t> other = Tokens(40, 3);
  const auto run = [&](LanguageModel& model, KvPagePool& pages, auto check) {
    KvCache caches[] = {{&pages, kContext}, {&pages, kContext}, {&pages, kContext}};
    const ForwardItem warm_up = {.cache = &caches[1], .token_ids = other, .parents = {}};
    ASSERT_TRUE(model.Forward({&warm_up, 1}).ok());
    const ForwardItem items[] = {
        {.cache = &caches[0], .token_ids = ids, .parents = {}, .num_logits = 301},
        {.cache = &caches[1], .token_ids = tree, .parents = parents, .num_logits = 5},
        {.cache = &caches[2], .token_ids = other, .parents = {}, .num_logits = 2}};
    const auto logits = model.Forward(items);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(caches[0].length(), ids.size());
    check(*logits);
  };
  const auto compare = [&] {
    run(*cpu_, *cpu_pages_, [&](const LogitsView& want) {
      run(*cuda_, *cuda_pages_, [&](const LogitsView& got) { ExpectNear(got, want, 99); });
    });
  };
  compare();
  testing::RandomModelSpec spec = Spec();
  spec.architecture = testing::RandomArchitecture::kQwen3;
  spec.hidden_size = 8;  // the shim takes seconds for each of these sizes
  spec.head_size = 4;
  spec.intermediate_size = 8;
  Load(spec);
  compare();
}

TEST_F(ModelCudaTest, APassOfAPromptChainsAndTreesHasTheBitsOfEachAlone) {
  testing::RandomModelSpec spec = Spec();
  spec.hidden_size = 8;
  spec.head_size = 4;
  spec.intermediate_size = 8;
  Load(spec);
  // The end of the first block of rows lies in the first tree, which follows three rows of a
  // chain. The second tree follows a row of its cache.
  std::vector<int32_t> large(kMaxDraftTokens);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<int32_t>(i / 3) - 1;
  const std::vector<int32_t> small = {-1, 0, 0, 2, 1};
  struct Part {
    std::vector<int32_t> token_ids;
    std::span<const int32_t> parents;
    size_t num_cached = 0;
    size_t num_logits = 0;
  };
  const std::vector<Part> parts = {{Tokens(kBlockRows - 56, 1), {}, 0, 20},
                                   {Tokens(7, 2), {}, 61, 7},
                                   {Tokens(3 + large.size(), 3), large, 62, 1 + large.size()},
                                   {Tokens(5, 4), small, 1, 5}};
  const auto run = [&](const std::vector<size_t>& numbers) {
    std::vector<std::unique_ptr<KvCache>> caches;
    std::vector<ForwardItem> items;
    for (const size_t number : numbers) {
      const Part& part = parts[number];
      caches.push_back(std::make_unique<KvCache>(cuda_pages_.get(), kContext));
      const std::vector<int32_t> before = Tokens(part.num_cached, 10 + number);
      if (part.num_cached > 0) {
        Forward({{.cache = caches.back().get(), .token_ids = before, .parents = {}}});
      }
      items.push_back({.cache = caches.back().get(),
                       .token_ids = part.token_ids,
                       .parents = part.parents,
                       .num_logits = part.num_logits});
    }
    return Forward(items);
  };
  const auto together = run({0, 1, 2, 3});
  size_t first = 0;
  for (size_t number = 0; number < parts.size(); ++number) {
    const auto alone = run({number});
    ASSERT_EQ(alone.size(), parts[number].num_logits);
    for (size_t row = 0; row < alone.size(); ++row, ++first) {
      EXPECT_EQ(alone[row], together[first]) << "part " << number << ", row " << row;
    }
  }
  EXPECT_EQ(first, together.size());

  // A row of the tree that was cut has the bits of the chain of its path.
  const Part& cut = parts[2];
  for (const size_t node : {size_t{0}, size_t{46}, size_t{63}}) {
    std::vector<int32_t> path;
    for (auto i = static_cast<int32_t>(node); i >= 0; i = large[static_cast<size_t>(i)]) {
      path.insert(path.begin(), cut.token_ids[3 + static_cast<size_t>(i)]);
    }
    path.insert(path.begin(), cut.token_ids.begin(), cut.token_ids.begin() + 3);
    KvCache cache(cuda_pages_.get(), kContext);
    const std::vector<int32_t> before = Tokens(cut.num_cached, 12);
    Forward({{.cache = &cache, .token_ids = before, .parents = {}}});
    const auto chain =
        Forward({{.cache = &cache, .token_ids = path, .parents = {}, .num_logits = 1}});
    EXPECT_EQ(chain[0], together[20 + 7 + 1 + node]) << "node " << node;
  }
}

TEST_F(ModelCudaTest, LargeBlocksOfRowsHaveTheBitsOfSmallOnes) {
  constexpr size_t kRows = CudaBackend::kMaxBlockRows + 60;
  testing::RandomModelSpec spec = Spec();
  spec.num_layers = 1;
  spec.max_position_embeddings = kRows;
  spec.dtype = DType::kBF16;
  testing::WriteRandomModel(folder_.path(), spec);
  const std::vector<int32_t> ids = Tokens(kRows, 9);
  std::vector<std::vector<float>> want;
  for (const size_t block_rows : {size_t{64}, kBlockRows, CudaBackend::kMaxBlockRows}) {
    cuda_pages_.reset();
    cuda_ = *CudaModel::Load(
        folder_.path(), {.max_slots = 1, .max_block_rows = block_rows, .exact_activations = false});
    cuda_pages_ = *cuda_->TakePages();
    KvCache cache(cuda_pages_.get(), kRows);
    const auto got =
        Forward({{.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 80}});
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << block_rows;
  }
}

TEST_F(ModelCudaTest, LogitsStayOnTheDevice) {
  const std::vector<int32_t> ids = Tokens(70, 4);
  KvCache cache(cuda_pages_.get(), kContext);
  const ForwardItem item = {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 3};
  const auto logits = cuda_->ForwardOnDevice({&item, 1});
  ASSERT_TRUE(logits.ok()) << logits.status();
  ASSERT_EQ(logits->rows, 3u);
  std::vector<float> last(99);
  ASSERT_TRUE(cuda_->stream()
                  .Copy(last.data(), logits->data + 2 * logits->stride, 99 * sizeof(float))
                  .ok());
  ASSERT_TRUE(cuda_->stream().Wait().ok());
  cache.TruncateTo(69);
  const ForwardItem again = {
      .cache = &cache, .token_ids = std::span(ids).last(1), .parents = {}, .num_logits = 1};
  const auto on_host = cuda_->Forward({&again, 1});
  ASSERT_TRUE(on_host.ok());
  EXPECT_TRUE(std::equal(last.begin(), last.end(), on_host->row(0)));

  const std::vector<int32_t> many = Tokens(CudaModel::kMaxLogitsRows + 1, 5);
  KvCache other(cuda_pages_.get(), kContext);
  const ForwardItem too_many = {
      .cache = &other, .token_ids = many, .parents = {}, .num_logits = many.size()};
  EXPECT_THAT(cuda_->ForwardOnDevice({&too_many, 1}).status().message(),
              HasSubstr("257 rows of logits, at most 256"));
}

TEST_F(ModelCudaTest, RefusesTypesThatDifferWithinAProduct) {
  // k_proj comes from a second file, as F16 zeros. The first file's own has a name that nobody asks
  // for.
  testing::RandomModelSpec spec = Spec();
  spec.num_layers = 1;
  const testing::TempDir folder;
  testing::WriteRandomModel(folder.path(), spec);
  const std::filesystem::path first = folder / "model.safetensors";
  std::stringstream bytes;
  bytes << std::ifstream(first, std::ios::binary).rdbuf();
  std::string text = bytes.str();
  text.replace(text.find("self_attn.k_proj"), 16, "self_attn.x_proj");
  std::filesystem::remove(first);
  std::ofstream(folder / "model-00001-of-00002.safetensors", std::ios::binary) << text;
  const size_t num_values = spec.num_kv_heads * spec.head_size * spec.hidden_size;
  const std::string header =
      absl::StrCat(R"({"model.layers.0.self_attn.k_proj.weight":{"dtype":"F16","shape":[)",
                   spec.num_kv_heads * spec.head_size, ",", spec.hidden_size,
                   R"(],"data_offsets":[0,)", 2 * num_values, "]}}");
  const uint64_t header_bytes = header.size();
  std::ofstream second(folder / "model-00002-of-00002.safetensors", std::ios::binary);
  second.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  second << header << std::string(2 * num_values, '\0');
  second.close();
  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors",)"
      << R"("model.layers.0.self_attn.k_proj.weight": "model-00002-of-00002.safetensors"}})";
  const absl::Status refused = CudaModel::Load(folder.path(), {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("layer 0: q_proj and k_proj are F32 and F16: on a GPU they must have one"));
  EXPECT_TRUE(LanguageModel::Load(folder.path(), &threads_).ok()) << "the CPU takes it";
}

TEST_F(ModelCudaTest, TakesTheGivenMemoryAndNamesThePartsThatDoNotFit) {
  const auto load = [&](uint64_t bytes) {
    return CudaModel::Load(folder_.path(), {.memory_bytes = bytes});
  };
  EXPECT_THAT(load(1 << 16).status().message(),
              HasSubstr("GPU memory: 0 MiB (--gpu-memory-bytes) do not hold weights ("));
  auto model = load(64 << 20);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto pages = *(*model)->TakePages();
  EXPECT_GT(pages->num_pages() * pages->page_bytes(), 40u << 20);
  EXPECT_LT(pages->num_pages() * pages->page_bytes(), 64u << 20);
  EXPECT_FALSE((*model)->TakePages().ok());
  testing::RandomModelSpec odd;
  odd.hidden_size = 36;
  const testing::TempDir folder;
  testing::WriteRandomModel(folder.path(), odd);
  EXPECT_THAT(CudaModel::Load(folder.path(), {}).status().message(),
              HasSubstr("hidden_size is 36: on a GPU it must be a multiple of 8"));
}

TEST_F(ModelCudaTest, ReportsTheProgressOfLoading) {
  std::vector<uint64_t> done;
  uint64_t whole = 0;
  const auto model = CudaModel::Load(
      folder_.path(), {.max_slots = 1, .on_progress = [&](uint64_t so_far, uint64_t all) {
                         done.push_back(so_far);
                         whole = all;
                       }});
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_GT(done.back(), 10000u);
  EXPECT_LE(done.back(), whole);
  EXPECT_EQ(whole, (*model)->weight_bytes());
}

TEST_F(ModelCudaTest, RefusesPassesThatDoNotFitAndGoesOn) {
  const std::vector<int32_t> ids = Tokens(20, 6);
  KvCache cache(cuda_pages_.get(), 2 * kContext);
  std::vector<int32_t> parents(17);
  std::iota(parents.begin(), parents.end(), -1);
  const std::vector<int32_t> tree = Tokens(17, 7);
  const ForwardItem large = {
      .cache = &cache, .token_ids = tree, .parents = parents, .num_logits = 1};
  EXPECT_THAT(cuda_->Forward({&large, 1}).status().message(),
              HasSubstr("item 0 has a tree with a path of 17 rows, at most 16"));
  parents[16] = 14;
  const ForwardItem wide = {.cache = &cache, .token_ids = tree, .parents = parents};
  EXPECT_TRUE(cuda_->Forward({&wide, 1}).ok());
  cache.TruncateTo(0);
  const std::vector<int32_t> many = Tokens(kContext + 1, 8);
  const ForwardItem long_one = {.cache = &cache, .token_ids = many, .parents = {}, .num_logits = 1};
  EXPECT_THAT(cuda_->Forward({&long_one, 1}).status().message(),
              HasSubstr(absl::StrCat("reaches row ", kContext + 1, " of ", kContext)));
  const ForwardItem good = {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 1};
  EXPECT_TRUE(cuda_->Forward({&good, 1}).ok());
}

}  // namespace
}  // namespace tandem
