#include "services/router/drafting/roster/draft_models.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr AcceptanceMode kMode = AcceptanceMode::kGreedy;

class DraftModelsTest : public ::testing::Test {
 protected:
  // Follows a change of the roster.
  template <typename Change>
  void Apply(const Change& change) {
    DraftRoster roster = models_.roster();
    ASSERT_TRUE(change(roster).ok());
    models_.SetRoster(roster);
  }
  void Load(const char* name) {
    Apply([&](DraftRoster& roster) { return roster.Load(name, 1).status(); });
  }
  ModelChoice ChoiceOfNow() {
    ModelChoice choice = models_.NewChoice(kMode);
    models_.ChooseArm(&choice);
    return choice;
  }
  uint64_t NumOfCanary() const { return models_.comparison().num_requests(DraftArm::kCanary); }

  DraftModels models_{DraftLengthOptions(), 1, 4};
};

TEST_F(DraftModelsTest, ARequestBelongsToTheTrialThatItBeganIn) {
  Load("a");
  const ModelChoice of_a = ChoiceOfNow();
  EXPECT_EQ(of_a.ArmIn(models_.trial()), DraftArm::kCanary);
  models_.NoteSpeed(of_a, 0.01);
  EXPECT_EQ(NumOfCanary(), 1U);
  Apply([](DraftRoster& roster) { return roster.Promote(); });
  EXPECT_EQ(of_a.ArmIn(models_.trial()), DraftArm::kNone);
  models_.NoteSpeed(of_a, 0.01);
  EXPECT_EQ(NumOfCanary(), 1U) << "the trial is over, and what it has shown stays";
  Load("b");
  EXPECT_EQ(NumOfCanary(), 0U);
  models_.NoteSpeed(of_a, 0.01);
  EXPECT_EQ(NumOfCanary(), 0U);
  EXPECT_EQ(of_a.ArmIn(models_.trial()), DraftArm::kNone);
}

TEST_F(DraftModelsTest, AChoiceThatIsMadeAnewKeepsItsArm) {
  Load("a");
  const ModelChoice former = ChoiceOfNow();
  const uint64_t version = former.version();
  models_.Forget(3);
  ModelChoice anew = models_.NewChoice(kMode);
  anew.KeepArmOf(former);
  EXPECT_EQ(anew.ArmIn(models_.trial()), DraftArm::kCanary);
  EXPECT_NE(anew.version(), version);
}

TEST_F(DraftModelsTest, OnlyModelsThatServeAreTried) {
  Load("a");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(models_.NextToTry(kMode).has_value());
  Apply([](DraftRoster& roster) { return roster.Promote(); });
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(models_.NextToTry(kMode).has_value());
  DraftModels two(DraftLengthOptions(), 2, 4);
  int num_tried[4] = {};
  for (uint32_t i = 0; i < 20 * kRequestsPerModelTrial; ++i) {
    if (const auto model = two.NextToTry(kMode)) ++num_tried[*model];
  }
  EXPECT_EQ(num_tried[0], 10);
  EXPECT_EQ(num_tried[1], 10);
  EXPECT_EQ(num_tried[2] + num_tried[3], 0);
}

// A number that gets another model begins with what is known of the verifier alone.
TEST_F(DraftModelsTest, AnotherModelIsJudgedAnew) {
  DraftLengthController& controller = models_.controller(1);
  AcceptanceEstimate estimate = controller.NewEstimate(kMode);
  const double unknown = estimate.Conditional(0);
  for (int i = 0; i < 200; ++i) {
    controller.ObserveDraft(1, kMode, JudgedChain(4, 4), 4, &estimate);
  }
  EXPECT_GT(controller.NewEstimate(kMode).Conditional(0), unknown + 0.1);
  models_.Forget(1);
  EXPECT_EQ(controller.NewEstimate(kMode).Conditional(0), unknown);
}

}  // namespace
}  // namespace tandem
