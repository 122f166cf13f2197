#include "services/worker/load_on_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/dtype.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/workers_under_test.h"

namespace tandem {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Streams must not move between workers whose bits differ, so numerics_id says what is rounded.
TEST(LoadOnGpuTest, ActivationsBeforeBf16WeightsAreRoundedUnlessExactIsAskedFor) {
  if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    testing::RandomModelSpec spec;
    spec.dtype = dtype;
    const testing::TempDir folder;
    testing::WriteRandomModel(folder.path(), spec);
    const auto numerics = [&](const std::string& precision) {
      const absl::StatusOr<DeviceModel> loaded =
          LoadOnGpu({.folder = folder.path(), .max_slots = 1, .activation_precision = precision});
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      return loaded.ok() ? loaded->numerics_id : "";
    };
    EXPECT_THAT(numerics("exact"), Not(HasSubstr("+BF16")));
    for (const char* const precision : {"auto", "bf16"}) {
      if (dtype == DType::kBF16) {
        EXPECT_THAT(numerics(precision), EndsWith("+BF16"));
      } else {
        EXPECT_EQ(numerics(precision), numerics("exact")) << "nothing is rounded";
      }
    }
  }
}

TEST(LoadOnGpuTest, HeadsAreLoadedBesideTheModel) {
  if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  const testing::TempDir folder;
  testing::WriteRandomModel(folder.path(), {});
  const WorkerModelOptions options = {
      .folder = folder.path(), .heads = folder / "heads", .max_slots = 1};
  const absl::Status missing = LoadOnGpu(options).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("heads/config.json"));
  testing::WriteRandomHeads(folder / "heads", {});
  const absl::StatusOr<DeviceModel> loaded = LoadOnGpu(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_NE(loaded->model->self_drafter(), nullptr);
  EXPECT_EQ(loaded->model->self_drafter()->name(), "medusa");
}

}  // namespace
}  // namespace tandem
