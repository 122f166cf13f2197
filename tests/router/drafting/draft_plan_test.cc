#include "services/router/drafting/draft_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/router/drafting/draft_simulation.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

// Costs that were measured without noise, by rows: `pass` and `verify`.
template <typename Pass, typename Verify>
RoundCosts Costs(Pass pass, Verify verify, double overhead) {
  DraftCosts costs;
  ObserveCosts(pass, verify, overhead, &costs);
  return costs.Expected();
}

// Steps through all lengths.
bool Next(std::span<const PlanSlot> slots, std::vector<uint32_t>* lengths) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].fixed.has_value()) continue;
    if (++(*lengths)[i] <= slots[i].gains.size()) return true;
    (*lengths)[i] = 0;
  }
  return false;
}

TEST(DraftPlanTest, IsNearlyAsGoodAsTheBestOfAllLengths) {
  std::mt19937_64 generator(1);
  const auto uniform = [&] { return std::generate_canonical<double, 53>(generator); };
  double worst = 1;
  for (int trial = 0; trial < 100; ++trial) {
    const double read = uniform() * 1e-3;
    const double row = uniform() * 0.2e-3;
    const double step = uniform() * 0.5e-3;
    // Kernels have cost steps of four rows.
    const RoundCosts costs = Costs(
        [&](double rows) { return 0.1 * read + step + 0.1 * row * rows; },
        [&](double rows) { return read + row * 4 * std::ceil(rows / 4); }, uniform() * 0.3e-3);
    std::vector<std::vector<double>> gains(3);
    std::vector<PlanSlot> slots(3);
    for (size_t i = 0; i < 3; ++i) {
      double gain = 1;
      for (int position = 0; position < 4; ++position) {
        gain *= 1 - uniform() * uniform();
        gains[i].push_back(gain);
      }
      slots[i].gains = gains[i];
      slots[i].lack = trial % 3 == 0 ? 1 + static_cast<uint32_t>(i * 3) : 1;
      slots[i].catch_up_rounds = 10;
    }
    if (trial % 4 == 0) slots[1].fixed = 2;
    const DraftBatch batch{.plain_rows = static_cast<uint32_t>(trial % 2)};
    const DraftPlanner planner(&costs, slots, batch);
    const DraftPlan plan = planner.Best(0);
    double best = 0;
    std::vector<uint32_t> lengths = {0, slots[1].fixed.value_or(0), 0};
    do {
      best = std::max(best, planner.Value(lengths).rate());
    } while (Next(slots, &lengths));
    EXPECT_EQ(plan.lengths[1], slots[1].fixed.value_or(plan.lengths[1]));
    worst = std::min(worst, plan.value.rate() / best);
  }
  EXPECT_GE(worst, 0.98);
}

// A slot whose drafter is up to date.
PlanSlot Slot(std::span<const double> gains, std::optional<uint32_t> fixed = std::nullopt) {
  PlanSlot slot;
  slot.gains = gains;
  slot.fixed = fixed;
  return slot;
}

class PairPlanTest : public testing::Test {
 protected:
  const std::vector<double> good_{0.9, 0.8, 0.7, 0.6};
  const std::vector<double> bad_{0.1, 0.01};
  const RoundCosts costs_ = Costs([](double) { return 0.2e-3; },
                                  [](double rows) { return 1e-3 + 0.2e-3 * rows; }, 0.1e-3);
};

TEST_F(PairPlanTest, GivesTokensToSlotsThatAreLikelyToAcceptThem) {
  const std::vector<PlanSlot> slots = {Slot(good_), Slot(bad_)};
  const DraftPlan plan = DraftPlanner(&costs_, slots, {}).Best(0);
  EXPECT_GE(plan.lengths[0], 2u);
  EXPECT_EQ(plan.lengths[1], 0u);
  EXPECT_GT(plan.value.rate(), plan.plain.rate());
}

TEST_F(PairPlanTest, DraftsNothingIfTheMarginIsNotReached) {
  const std::vector<PlanSlot> slots = {Slot(good_), Slot(bad_)};
  EXPECT_THAT(DraftPlanner(&costs_, slots, {}).Best(5).lengths, ElementsAre(0, 0));
}

TEST_F(PairPlanTest, DraftsNothingWhereTheUsualPaceIsMuchFaster) {
  const std::vector<PlanSlot> slots = {Slot(good_), Slot(good_)};
  const DraftPlanner planner(&costs_, slots, {});
  const DraftPlan usual = planner.Best(0);
  const double own_pace = usual.value.rate() * usual.plain.seconds;
  EXPECT_GT(own_pace, 2) << "two plain tokens";
  EXPECT_EQ(planner.Best(0, 1.2 * own_pace).lengths, usual.lengths) << "about its own pace";
  const DraftPlan hurried = planner.Best(0, 4 * own_pace);
  EXPECT_THAT(hurried.lengths, ElementsAre(0, 0));
  EXPECT_EQ(hurried.value.rate(), hurried.plain.rate());
  EXPECT_EQ(hurried.drafted_over_plain, usual.drafted_over_plain);
  EXPECT_TRUE(hurried.hurried);
  EXPECT_FALSE(usual.hurried);
}

TEST_F(PairPlanTest, AFixedSlotPaysForTheRoundTripOfTheOthers) {
  // A Propose that is sent in any case makes a token worth its cost that would not be worth a
  // Propose.
  const std::vector<double> fair = {0.45};
  const RoundCosts costs = Costs([](double) { return 0.1e-3; },
                                 [](double rows) { return 1e-3 + 0.1e-3 * rows; }, 0.4e-3);
  const std::vector<PlanSlot> alone = {Slot(fair), Slot({})};
  EXPECT_THAT(DraftPlanner(&costs, alone, {}).Best(0).lengths, ElementsAre(0, 0));
  const std::vector<PlanSlot> beside = {Slot(fair), Slot(good_, 2)};
  EXPECT_THAT(DraftPlanner(&costs, beside, {}).Best(0).lengths, ElementsAre(1, 2));
}

TEST_F(PairPlanTest, SiblingsAreDrawnWhereTheyGainMoreThanTheirRows) {
  std::vector<PlanSlot> slots = {Slot(good_), Slot(good_)};
  slots[0].siblings = {{0, 0.3}, {1, 0.25}, {3, 0.2}, {0, 0.001}};
  slots[0].max_nodes = 16;
  const auto siblings = [&](double row) {
    const RoundCosts costs = Costs([](double) { return 0.02e-3; },
                                   [&](double rows) { return 1e-3 + row * rows; }, 0.1e-3);
    const DraftPlan plan = DraftPlanner(&costs, slots, {}).Best(0);
    EXPECT_THAT(plan.lengths, ElementsAre(4, 4));
    EXPECT_EQ(plan.siblings[1], 0u);
    const RoundValue value = DraftPlanner(&costs, slots, {}).Value(plan.lengths, plan.siblings);
    EXPECT_EQ(value.rate(), plan.value.rate());
    return plan.siblings[0];
  };
  EXPECT_EQ(siblings(1e-6), 3u) << "the fourth one hardly gains anything";
  EXPECT_EQ(siblings(0.1e-3), 0u);
}

TEST_F(PairPlanTest, OfATreeThatMayHaveFewTokensTheBestOnesAreTaken) {
  const RoundCosts costs =
      Costs([](double) { return 0.02e-3; }, [](double rows) { return 1e-3 + 1e-6 * rows; }, 0.1e-3);
  std::vector<PlanSlot> slots = {Slot(good_)};
  slots[0].siblings = {{0, 0.75}, {1, 0.65}, {0, 0.5}};
  const auto plan = [&](uint32_t max_nodes) {
    slots[0].max_nodes = max_nodes;
    return DraftPlanner(&costs, slots, {}).Best(0);
  };
  EXPECT_THAT(plan(5).lengths, ElementsAre(3)) << "0.9, 0.8, 0.75, 0.7, 0.65";
  EXPECT_THAT(plan(5).siblings, ElementsAre(2));
  EXPECT_THAT(plan(3).lengths, ElementsAre(4)) << "a chain gives more than 0.9, 0.8, 0.75";
  EXPECT_THAT(plan(3).siblings, ElementsAre(0));
  EXPECT_THAT(plan(0).lengths, ElementsAre(4));
  EXPECT_THAT(plan(0).siblings, ElementsAre(0));
}

TEST_F(PairPlanTest, ATreeOfAFixedDepthIsDrawnAsAWhole) {
  std::vector<PlanSlot> slots = {Slot(good_, 2)};
  slots[0].siblings = {{0, 0.001}, {1, 0.001}};
  slots[0].max_nodes = 4;
  const DraftPlan plan = DraftPlanner(&costs_, slots, {}).Best(0);
  EXPECT_THAT(plan.lengths, ElementsAre(2));
  EXPECT_THAT(plan.siblings, ElementsAre(2));
}

TEST_F(PairPlanTest, CountsTheTokensThatWillProbablyBeCommitted) {
  const std::vector<PlanSlot> slots = {Slot(good_), Slot(bad_)};
  const std::vector<uint32_t> lengths = {2, 1};
  const RoundValue value = DraftPlanner(&costs_, slots, {.plain_rows = 3}).Value(lengths);
  EXPECT_NEAR(value.tokens, 3 + 2 + 0.9 + 0.8 + 0.1, 1e-12);
  // The round has two passes, 8 rows and two round trips.
  EXPECT_NEAR(value.seconds / (2 * 0.2e-3 + 1e-3 + 8 * 0.2e-3 + 2 * 0.1e-3), 1, 0.02);
}

}  // namespace
}  // namespace tandem
