#include "services/worker/worker_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "kernels/amx/matrix_units.h"
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

}  // namespace
}  // namespace tandem
