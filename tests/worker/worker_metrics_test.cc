#include "services/worker/worker_metrics.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/metrics/exposition.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

std::string RingErrors(const std::string& transport, const std::string& reason) {
  return absl::StrCat(R"(tandem_ring_errors_total{model="toy",reason=")", reason,
                      R"(",transport=")", transport, "\"}");
}

class WorkerMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(folder_ / "toy", {});
    auto loaded = WorkerModel::Load({.folder = folder_ / "toy", .max_slots = 1});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_ = *std::move(loaded);
    models_ = std::make_unique<ModelShelf>(model_.get());
  }

  testing::TempDir folder_;
  std::unique_ptr<WorkerModel> model_;
  std::unique_ptr<ModelShelf> models_;
};

TEST_F(WorkerMetricsTest, EveryRingErrorIsShownBeforeItHappens) {
  WorkerMetrics metrics(WorkerMetrics::kVerifier, "1", models_.get());
  const auto read = [&] { return testing::ReadExposition(metrics.registry().Serialize()); };
  for (const std::string transport : {"cuda_ipc", "shm", "inline"}) {
    for (const std::string reason : kRingErrorNames) {
      EXPECT_EQ(read().at(RingErrors(transport, reason)), 0);
    }
  }
  const size_t num_series = read().size();
  auto& errors = model_->stats().ring_errors;
  errors[{v1::RING_TRANSPORT_SHM, RingError::kBadRows}] = 2;
  errors[{v1::RING_TRANSPORT_INLINE, RingError::kInternal}] = 1;
  metrics.Refresh();
  EXPECT_EQ(read().at(RingErrors("shm", "bad_rows")), 2);
  EXPECT_EQ(read().at(RingErrors("inline", "internal")), 1);
  EXPECT_EQ(read().size(), num_series);
}

TEST_F(WorkerMetricsTest, ADrafterHasNoRingErrors) {
  const WorkerMetrics metrics(WorkerMetrics::kDrafter, "1", models_.get());
  EXPECT_EQ(metrics.registry().Serialize().find("tandem_ring_errors_total"), std::string::npos);
}

}  // namespace
}  // namespace tandem
