// Tests of a model whose runtime calls fail one after the other, while it loads and while it runs,
// and of a model that lacks shared memory. They run only over the shim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/cuda/cuda_model.h"
#include "common/status.h"
#include "tests/cuda/small_model.h"
#include "tests/simt/failing_calls.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::model_failures_test {
namespace {

using ::testing::HasSubstr;

// Loads the model, and takes a prompt and three tokens through it. The first token goes kernel by
// kernel, the second is recorded as a graph, and the third uses that graph. The model's heads, if
// it has any, draft after the prompt and after the last token. Returns the last row of logits.
absl::StatusOr<std::vector<float>> Work(const std::filesystem::path& folder,
                                        CudaModelOptions options) {
  options.max_slots = 1;
  TANDEM_ASSIGN_OR_RETURN(const auto model, CudaModel::Load(folder, std::move(options)));
  TANDEM_ASSIGN_OR_RETURN(const auto pages, model->TakePages());
  KvCache cache(pages.get(), 128);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<float> last;
  for (const auto& [begin, end] : {std::pair{0, 8}, {8, 9}, {9, 10}, {10, 11}}) {
    const ForwardItem item = {.cache = &cache,
                              .token_ids = std::span(ids).subspan(begin, end - begin),
                              .parents = {},
                              .num_logits = 1};
    TANDEM_ASSIGN_OR_RETURN(const LogitsView logits, model->Forward({&item, 1}));
    last.assign(logits.row(0), logits.row(0) + model->description().vocabulary_size);
    if (model->self_drafter() == nullptr || (end > 8 && static_cast<size_t>(end) < ids.size()))
      continue;
    model->self_drafter()->KeepFeature(0, 0);
    GuessOrder order = {.text = {&cache, std::span(ids).first(end)}, .limits = {2, 4}, .tree = {}};
    TANDEM_RETURN_IF_ERROR(model->self_drafter()->Propose({&order, 1}));
  }
  return last;
}

constexpr size_t kVocabularySize = 24;

// Makes each call of a model with heads fail in turn.
void ExpectErrorsOfCalls(const std::filesystem::path& model) {
  const CudaModelOptions options = {.heads = model / "heads", .use_graphs = false};
  const uint64_t before = simt::NumCalls();
  ASSERT_TRUE(Work(model, options).ok());
  const uint64_t num_calls = simt::NumCalls() - before;
  ASSERT_GT(num_calls, 100u);
  ASSERT_EQ(simt::NumLive(), 0u);
  size_t num_failed = 0;
  for (uint64_t call = 0; call < num_calls; ++call) {
    simt::FailCall(call, cudaErrorIllegalAddress);
    const absl::Status status = Work(model, options).status();
    EXPECT_EQ(simt::NumLive(), 0u) << "call " << call;
    if (status.ok()) continue;  // the call freed something, and nobody needs its error
    ++num_failed;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cudaErrorIllegalAddress"));
  }
  EXPECT_GE(num_failed, num_calls - 32) << "all calls except those that free something";
}

class ModelFailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(folder_.path(), testing::SmallModel(kVocabularySize, 128));
  }
  ~ModelFailuresTest() override {
    simt::FailNoCall();
    simt::SetMostSharedBytes(simt::kMostSharedBytes);
  }

  testing::TempDir folder_;
};

TEST_F(ModelFailuresTest, AFailureOfAnyCallLeaksNothingAndTheStatusNamesIt) {
  testing::WriteRandomHeads(folder_ / "heads",
                            {.hidden_size = 8, .vocabulary_size = kVocabularySize, .num_heads = 2});
  ExpectErrorsOfCalls(folder_.path());
}

TEST_F(ModelFailuresTest, SoDoesAFailureOfAnyCallOfEagle) {
  testing::WriteRandomEagle(folder_ / "heads", {.hidden_size = 8,
                                                .vocabulary_size = kVocabularySize,
                                                .num_heads = 2,
                                                .num_kv_heads = 1,
                                                .head_size = 4,
                                                .intermediate_size = 8,
                                                .is_third = true,
                                                .layer_ids = {0, 1}});
  ExpectErrorsOfCalls(folder_.path());
}

TEST_F(ModelFailuresTest, ALossOfTheDeviceAtAnyCallEndsTheWorkWithAnError) {
  const uint64_t before = simt::NumCalls();
  ASSERT_TRUE(Work(folder_.path(), {}).ok());
  const uint64_t num_calls = simt::NumCalls() - before;
  size_t num_failed = 0;
  for (uint64_t call = 0; call < num_calls; ++call) {
    simt::LoseDevice(call);
    bool has_graphs = true;
    const absl::Status status =
        Work(folder_.path(), {.on_no_graphs = [&](const absl::Status&) { has_graphs = false; }})
            .status();
    simt::FailNoCall();
    EXPECT_EQ(simt::NumLive(), 0u) << "call " << call;
    EXPECT_TRUE(has_graphs) << "call " << call << ": the graph is not the reason";
    if (status.ok()) continue;  // the remaining calls freed something
    ++num_failed;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  }
  EXPECT_GE(num_failed, num_calls - 24);
}

TEST_F(ModelFailuresTest, IfAnyCallOfAGraphFailsPassesGoKernelByKernel) {
  const uint64_t before = simt::NumCalls();
  const absl::StatusOr<std::vector<float>> want = Work(folder_.path(), {});
  ASSERT_TRUE(want.ok()) << want.status();
  const uint64_t num_calls = simt::NumCalls() - before;
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
    std::set<std::string> mended;
    for (uint64_t number = 0; number < num_calls; ++number) {
      std::vector<std::string> told;
      simt::FailCall(number, error);
      const absl::StatusOr<std::vector<float>> got = Work(
          folder_.path(),
          {.on_no_graphs = [&](const absl::Status& why) { told.emplace_back(why.message()); }});
      const std::string call = simt::FailedCall();
      EXPECT_EQ(simt::NumLive(), 0u) << call;
      if (!got.ok()) {
        EXPECT_TRUE(told.empty()) << call << ": " << got.status();
        continue;
      }
      EXPECT_EQ(*got, *want) << call;
      if (told.empty()) {  // nobody needs the error; the destructor of the stream waits
        EXPECT_TRUE(testing::GivesBack(call) || call == "cudaStreamSynchronize") << call;
        continue;
      }
      EXPECT_EQ(told.size(), 1u) << call;
      EXPECT_THAT(told.front(), HasSubstr(cudaGetErrorName(error))) << call;
      mended.insert(call);
    }
    EXPECT_THAT(mended, ::testing::IsSupersetOf({"cudaStreamBeginCapture", "cudaLaunchKernelEx",
                                                 "cudaStreamEndCapture", "cudaGraphInstantiate",
                                                 "cudaGraphLaunch"}));
  }
}

TEST_F(ModelFailuresTest, HeadsTooLargeForTheSharedMemoryAreRefusedAtTheStart) {
  testing::RandomModelSpec spec;
  spec.num_layers = 1;
  spec.num_heads = 1;
  spec.num_kv_heads = 1;
  spec.head_size = 256;
  spec.max_position_embeddings = 128;
  const testing::TempDir folder;
  testing::WriteRandomModel(folder.path(), spec);
  simt::SetMostSharedBytes(99 << 10);  // limit of compute capability 8.6 and 8.9
  const absl::Status refused = CudaModel::Load(folder.path(), {.max_slots = 1}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("config.json: head_dim is 256: attention takes 163840 bytes of shared "
                        "memory per block, and SIMT shim has 101376"));
  EXPECT_EQ(simt::NumLive(), 0u);
  EXPECT_TRUE(Work(folder_.path(), {}).ok()) << "small heads fit";
  simt::SetMostSharedBytes(simt::kMostSharedBytes);
  const absl::Status served = Work(folder.path(), {}).status();
  EXPECT_TRUE(served.ok()) << served;
}

}  // namespace
}  // namespace tandem::model_failures_test
