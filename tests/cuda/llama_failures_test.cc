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

// Loads, and takes a prompt and a token through the model.
absl::Status Work(const std::filesystem::path& folder) {
  TANDEM_ASSIGN_OR_RETURN(const auto model, CudaLlama::Load(folder, {.max_slots = 1}));
  TANDEM_ASSIGN_OR_RETURN(const auto pages, model->TakePages());
  KvCache cache(pages.get(), 128);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const auto& [begin, end] : {std::pair{0, 8}, {8, 9}}) {
    const ForwardItem item = {.cache = &cache,
                              .token_ids = std::span(ids).subspan(begin, end - begin),
                              .parents = {},
                              .num_logits = 1};
    TANDEM_RETURN_IF_ERROR(model->Forward({&item, 1}).status());
  }
  return absl::OkStatus();
}

TEST(LlamaFailuresTest, WhicheverCallFailsNothingLeaksAndTheStatusSaysWhich) {
  testing::RandomModelSpec spec;
  spec.num_layers = 1;
  spec.max_position_embeddings = 128;
  const testing::TempDir folder;
  testing::WriteRandomModel(folder.path(), spec);
  const uint64_t before = simt::NumCalls();
  ASSERT_TRUE(Work(folder.path()).ok());
  const uint64_t num_calls = simt::NumCalls() - before;
  ASSERT_GT(num_calls, 100u);
  ASSERT_EQ(simt::NumLive(), 0u);
  size_t num_failed = 0;
  for (uint64_t call = 0; call < num_calls; ++call) {
    simt::FailCall(call, cudaErrorIllegalAddress);
    const absl::Status status = Work(folder.path());
    EXPECT_EQ(simt::NumLive(), 0u) << "call " << call;
    if (status.ok()) continue;  // the call gave something back: nobody to tell
    ++num_failed;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("cudaErrorIllegalAddress"));
  }
  simt::FailNoCall();
  EXPECT_GE(num_failed, num_calls - 20) << "all but what gives back";
}

}  // namespace
}  // namespace tandem
