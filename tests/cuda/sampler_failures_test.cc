// Makes the sampler's runtime calls fail one after the other. Runs only over the shim.
#include <gtest/gtest.h>

#include <array>
#include <type_traits>
#include <vector>

#include "common/model/cuda/device_sampler.h"
#include "common/status.h"
#include "kernels/device/device_arena.h"
#include "tests/simt/failing_calls.h"

namespace tandem::sampler_failures_test {
namespace {

constexpr size_t kVocabularySize = 16;

// Takes a batch of two slots from its memory to its tokens. One slot has penalties and a bias, and
// the other one samples.
absl::Status Work(const DeviceStream& stream) {
  DeviceSampler sampler({.vocabulary_size = kVocabularySize,
                         .logits_stride = kVocabularySize,
                         .max_contexts = 2,
                         .max_context = 8});
  std::array<int32_t, 2> token_ids = {-1, -1};
  size_t bytes = 0;
  const auto add = [&](void**, size_t count, const char*) {
    bytes += DeviceArena::Rounded(count);
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(sampler.LayOut(MemoryTaker(add)));
  // The destructor of the arena waits for the device, and so for copies from and to earlier
  // objects.
  TANDEM_ASSIGN_OR_RETURN(DeviceArena arena, DeviceArena::Create(bytes + 4096));
  const auto take = [&](void** piece, size_t count, const char* what) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(*piece, arena.Take<char>(count, what));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(sampler.LayOut(MemoryTaker(take)));
  TANDEM_ASSIGN_OR_RETURN(float* const logits, arena.Take<float>(2 * kVocabularySize, "logits"));
  TANDEM_RETURN_IF_ERROR(stream.Clear(logits, 2 * kVocabularySize * sizeof(float)));
  TANDEM_RETURN_IF_ERROR(sampler.Start(&stream));

  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.repetition_penalty = 1.2f;
  greedy.logit_bias.emplace_back(3, 2.0f);
  SamplingParams sampled;
  sampled.seed = 5;
  sampled.reproducible = true;
  TokenCounts counts;
  counts.Add(5, /*is_output=*/false);
  counts.Add(6, /*is_output=*/true);
  TANDEM_RETURN_IF_ERROR(sampler.Begin());
  std::vector<DeviceSampler::Row> rows;
  for (const SamplingParams* params : {&greedy, &sampled}) {
    TANDEM_ASSIGN_OR_RETURN(
        const size_t context,
        sampler.AddContext(
            {.params = params, .counts = &counts, .num_output_tokens = 1, .position = 2}));
    rows.push_back({.context = context, .num_earlier = 0, .how = DeviceSampler::DrawOf(*params)});
  }
  TANDEM_ASSIGN_OR_RETURN(const DeviceSampler::Rows added, sampler.AddRows(rows));
  TANDEM_RETURN_IF_ERROR(sampler.Send());
  TANDEM_RETURN_IF_ERROR(
      sampler.Draw(added, {.data = logits, .stride = kVocabularySize, .rows = 2}));
  TANDEM_RETURN_IF_ERROR(
      stream.Copy(token_ids.data(), sampler.memory().token_ids, sizeof(token_ids)));
  TANDEM_RETURN_IF_ERROR(stream.Wait());
  EXPECT_EQ(token_ids[0], 3) << "the bias";
  EXPECT_GE(token_ids[1], 0);
  return absl::OkStatus();
}

TEST(SamplerFailuresTest, EachFailureIsReportedAndLeaksNothing) {
  const absl::StatusOr<DeviceStream> stream = DeviceStream::Create();
  ASSERT_TRUE(stream.ok()) << stream.status();
  // The calls take memory on both sides and an event, and they send, count and draw.
  testing::ExpectEachFailureIsTold([&] { return Work(*stream); }, 16);
}

}  // namespace
}  // namespace tandem::sampler_failures_test
