// A model whose calls of the runtime fail one after the other, while it loads and while it runs.
// Over the shim only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/model/cuda/cuda_llama.h"
#include "common/status.h"
#include "tests/simt/fake_runtime.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Loads, and takes a prompt and three tokens through the model: the first by itself, the second
// recorded as a graph, the third by that graph. Returns the last row of logits.
absl::StatusOr<std::vector<float>> Work(const std::filesystem::path& folder) {
  TANDEM_ASSIGN_OR_RETURN(const auto model, CudaLlama::Load(folder, {.max_slots = 1}));
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
    last.assign(logits.row(0), logits.row(0) + model->config().vocabulary_size);
  }
  return last;
}

class LlamaFailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::RandomModelSpec spec;
    spec.num_layers = 1;
    spec.max_position_embeddings = 128;
    testing::WriteRandomModel(folder_.path(), spec);
  }
  ~LlamaFailuresTest() override { simt::FailNoCall(); }

  testing::TempDir folder_;
};

TEST_F(LlamaFailuresTest, WhicheverCallFailsNothingLeaksAndTheStatusSaysWhich) {
  const uint64_t before = simt::NumCalls();
  ASSERT_TRUE(Work(folder_.path()).ok());
  const uint64_t num_calls = simt::NumCalls() - before;
  ASSERT_GT(num_calls, 100u);
  ASSERT_EQ(simt::NumLive(), 0u);
  size_t num_failed = 0;
  for (uint64_t call = 0; call < num_calls; ++call) {
    simt::FailCall(call, cudaErrorIllegalAddress);
    const absl::Status status = Work(folder_.path()).status();
    EXPECT_EQ(simt::NumLive(), 0u) << "call " << call;
    if (status.ok()) continue;  // the call gave something back: nobody to tell
    ++num_failed;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("cudaErrorIllegalAddress"));
  }
  EXPECT_GE(num_failed, num_calls - 24) << "all but what gives back";
}

TEST_F(LlamaFailuresTest, WithoutMemoryForGraphsPassesGoKernelByKernel) {
  const uint64_t before = simt::NumCalls();
  const uint64_t launches_before = simt::NumLaunches();
  const absl::StatusOr<std::vector<float>> want = Work(folder_.path());
  ASSERT_TRUE(want.ok()) << want.status();
  const uint64_t num_calls = simt::NumCalls() - before;
  const uint64_t num_launches = simt::NumLaunches() - launches_before;
  size_t num_served = 0;
  for (uint64_t call = 0; call < num_calls; ++call) {
    simt::FailCall(call, cudaErrorMemoryAllocation);
    const uint64_t launched = simt::NumLaunches();
    const absl::StatusOr<std::vector<float>> got = Work(folder_.path());
    EXPECT_EQ(simt::NumLive(), 0u) << "call " << call;
    if (!got.ok()) continue;
    EXPECT_EQ(*got, *want) << "call " << call;
    num_served += simt::NumLaunches() - launched > num_launches ? 1 : 0;
  }
  EXPECT_GE(num_served, 3u) << "beginning, ending and making the graph";
}

}  // namespace
}  // namespace tandem
