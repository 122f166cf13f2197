#include "services/worker/worker_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "kernels/amx/matrix_units.h"
#include "kernels/support/activation_precision.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkerModelTest, MatrixUnitsAreUsedWhereThereAreSomeOrRefused) {
  const testing::TempDir folder;
  testing::WriteRandomModel(folder / "toy", {});
  const auto numerics = [&](const std::string& units) -> absl::StatusOr<std::string> {
    auto loaded =
        WorkerModel::Load({.folder = folder / "toy", .max_slots = 1, .matrix_units = units});
    if (!loaded.ok()) return loaded.status();
    return (*loaded)->Describe().numerics_id();
  };
  EXPECT_THAT(*numerics("off"), Not(HasSubstr("+AMX")));
  EXPECT_EQ(absl::StrContains(*numerics("auto"), "+AMX"), UsesMatrixUnits());
  if (HasMatrixUnits()) {
    EXPECT_TRUE(numerics("on").ok());
  } else {
    EXPECT_EQ(numerics("on").status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(numerics("on").status().message()), HasSubstr("--matrix-units on"));
  }
  AllowMatrixUnits(false);
}

TEST(WorkerModelTest, ActivationsAreRoundedWhereThatIsFasterOrRefused) {
  const testing::TempDir folder;
  testing::WriteRandomModel(folder / "toy", {});
  const auto numerics = [&](const std::string& precision,
                            const std::string& units) -> absl::StatusOr<std::string> {
    auto loaded = WorkerModel::Load({.folder = folder / "toy",
                                     .max_slots = 1,
                                     .matrix_units = units,
                                     .activation_precision = precision});
    if (!loaded.ok()) return loaded.status();
    return (*loaded)->Describe().numerics_id();
  };
  EXPECT_THAT(*numerics("exact", "off"), Not(HasSubstr("+BF16")));
  EXPECT_EQ(*numerics("auto", "off"), *numerics("exact", "off")) << "a CPU rounds only on demand";
  const absl::StatusOr<std::string> rounded = numerics("bf16", "off");
  if (HasBf16Products()) {
    EXPECT_THAT(*rounded, HasSubstr("+BF16"));
  } else {
    EXPECT_EQ(rounded.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(rounded.status().message()), HasSubstr("--activation-precision bf16"));
  }
  EXPECT_EQ(numerics("bf16", "auto").ok(), HasBf16Products()) << "auto gives way";
  if (HasMatrixUnits()) {
    EXPECT_EQ(numerics("bf16", "on").status().code(), absl::StatusCode::kFailedPrecondition);
  }
  AllowMatrixUnits(false);
  RoundActivations(false);
}

}  // namespace
}  // namespace tandem
