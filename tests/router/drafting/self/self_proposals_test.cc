// Tests when the router asks the verifier's own drafter, and what it makes of its proposals.
#include "services/router/drafting/self/self_proposals.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::self_proposals_test {
namespace {

// ---------------------------------------------------------------- calibration

// Has a chain of one token judged `times` times.
void Judge(float stated, bool accepted, int times, ChanceCalibration* calibration) {
  const std::vector<uint32_t> path(accepted ? 1 : 0);
  for (int i = 0; i < times; ++i) calibration->Observe({&stated, 1}, {}, path);
}

TEST(ChanceCalibrationTest, BelievesWhatIsStatedAtFirst) {
  const ChanceCalibration calibration;
  for (const double stated : {0.001, 0.3, 0.7, 1.0}) {
    EXPECT_DOUBLE_EQ(calibration.Corrected(stated), stated);
  }
}

TEST(ChanceCalibrationTest, LearnsHowOftenItIsRight) {
  ChanceCalibration calibration;
  Judge(0.4f, true, 90, &calibration);
  Judge(0.4f, false, 10, &calibration);
  EXPECT_NEAR(calibration.Corrected(0.4), 0.9, 0.05);
  EXPECT_GT(calibration.Corrected(0.45), calibration.Corrected(0.4)) << "of the same class";
  EXPECT_LE(calibration.Corrected(0.49), 1.0);
  EXPECT_DOUBLE_EQ(calibration.Corrected(0.7), 0.7) << "nothing was judged there";
  Judge(0.4f, false, 4000, &calibration);
  EXPECT_LT(calibration.Corrected(0.4), 0.03) << "older counts fade";
}

TEST(ChanceCalibrationTest, CountsWhatWasTestedAlone) {
  // Two children of the beginning, and one child of each. The second one was accepted, and its
  // child was not.
  const std::vector<float> stated = {0.55f, 0.25f, 0.7f, 0.15f};
  const std::vector<int32_t> parents = {-1, -1, 0, 1};
  const std::vector<uint32_t> path = {1};
  ChanceCalibration calibration;
  for (int i = 0; i < 100; ++i) calibration.Observe(stated, parents, path);
  EXPECT_LT(calibration.Corrected(0.55), 0.1);
  EXPECT_GT(calibration.Corrected(0.25), 0.9);
  EXPECT_DOUBLE_EQ(calibration.Corrected(static_cast<double>(0.7f)), static_cast<double>(0.7f))
      << "its parent was rejected";
  EXPECT_LT(calibration.Corrected(0.15), 0.05);
}

// ---------------------------------------------------------------- proposals

constexpr AskingPlace kHere = AskingPlace::kElsewhere;
constexpr AskingPlace kAfterMatch = AskingPlace::kAfterMatch;

LookupDraft Proposal() {
  LookupDraft draft;
  draft.token_ids = {1, 2, 3};
  draft.parents = {-1, -1, 0};
  draft.beliefs = {0.6f, 0.3f, 0.9f};
  return draft;
}

TEST(SelfProposalsTest, AProposalServesTheTextThatItContinuesAlone) {
  SelfPrior prior;
  SelfProposals self(Drafter::kMedusa, &prior, /*has_rivals=*/true);
  const std::vector<int32_t> tokens(10);
  EXPECT_TRUE(self.Find(tokens, {4, 16}).token_ids.empty());
  self.OnProposal(10, Proposal());
  EXPECT_TRUE(self.Find(std::span(tokens).first(9), {4, 16}).token_ids.empty());
  EXPECT_TRUE(self.Find(std::vector<int32_t>(11), {4, 16}).token_ids.empty());
  const LookupDraft draft = self.Find(tokens, {4, 16});
  EXPECT_EQ(draft.drafter, Drafter::kMedusa);
  // By the chances of the paths: 0.6, 0.54, 0.3.
  EXPECT_EQ(draft.token_ids, (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(draft.parents, (std::vector<int32_t>{-1, 0, -1}));
  ASSERT_EQ(draft.chances.size(), 3u);
  EXPECT_NEAR(draft.chances[1], 0.54, 1e-6);
  EXPECT_NEAR(draft.chances[2], 0.3, 1e-6);
}

TEST(SelfProposalsTest, KeepsTheLimits) {
  SelfPrior prior;
  SelfProposals self(Drafter::kBlockwise, &prior, /*has_rivals=*/true);
  const std::vector<int32_t> tokens(10);
  self.OnProposal(10, Proposal());
  EXPECT_EQ(self.Find(tokens, {1, 16}).token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(self.Find(tokens, {4, 1}).token_ids, std::vector<int32_t>{1});
  const LookupDraft chain = self.Find(tokens, 4);
  EXPECT_EQ(chain.token_ids, (std::vector<int32_t>{1, 3}));
  EXPECT_TRUE(chain.parents.empty());
}

TEST(SelfProposalsTest, AsksWhileProposalsGainAndRarelyOtherwise) {
  SelfPrior prior;
  SelfProposals gains(Drafter::kMedusa, &prior, /*has_rivals=*/true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(gains.IsWanted(kHere));
    gains.OnRound({.gained = 0.8, .cost = 0.1});
  }
  SelfProposals loses(Drafter::kMedusa, &prior, /*has_rivals=*/true);
  int asked = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool asks = loses.IsWanted(kHere);
    asked += asks ? 1 : 0;
    loses.OnRound({.gained = 0, .cost = asks ? std::optional<ProposalCost>(0.15) : std::nullopt});
  }
  EXPECT_LT(asked, 60);
  EXPECT_GT(asked, 15) << "it is tried now and then";
}

TEST(SelfProposalsTest, ARequestFollowsItsOwnFirstProposals) {
  SelfPrior prior;
  prior.net_gain = {-0.5, -0.5};
  // One good proposal is not enough, two are.
  SelfProposals self(Drafter::kEagle, &prior, /*has_rivals=*/false);
  const auto propose = [&self] {
    self.OnRound({.gained = 0, .cost = 0.3});
    self.OnRound({.gained = 1.5});
  };
  EXPECT_TRUE(self.IsWanted(kHere)) << "each request asks at once";
  propose();
  EXPECT_FALSE(self.IsWanted(kHere));
  propose();
  EXPECT_TRUE(self.IsWanted(kHere));
  EXPECT_LT(prior.net_gain[static_cast<size_t>(kHere)], -0.4) << "others learn slowly";
}

TEST(SelfProposalsTest, WhoAsksAloneDoesNotTellOthersThatItIsDear) {
  SelfPrior prior;
  SelfProposals alone(Drafter::kMedusa, &prior, /*has_rivals=*/true);
  for (int i = 0; i < 500; ++i) alone.OnRound({.gained = 0.5, .cost = ProposalCost(3, 0.1)});
  EXPECT_FALSE(alone.IsWanted(kHere, 64));
  EXPECT_NEAR(prior.net_gain[1], 0.4, 0.01);
}

// Has a request decode for so many rounds. It asks where it wants to, and no proposal gains
// anything. Returns how often it asked.
int DecodeWithoutGain(int num_rounds, double cost, SelfProposals* self) {
  int asked = 0;
  for (int i = 0; i < num_rounds; ++i) {
    const bool asks = self->IsWanted(kHere);
    asked += asks ? 1 : 0;
    self->OnRound({.gained = 0, .cost = asks ? std::optional<ProposalCost>(cost) : std::nullopt});
  }
  return asked;
}

TEST(SelfProposalsTest, QuestionsThatPromiseNothingTakeOnePercentOfTheTime) {
  // A layer of EAGLE reads the whole text before it proposes, which can be long.
  for (const double cost : {0.3, 3.0, 50.0}) {
    SelfPrior prior;
    prior.net_gain = {-0.5, -0.5};
    int asked = 0;
    for (int i = 0; i < 1000; ++i) {
      SelfProposals self(Drafter::kEagle, &prior, /*has_rivals=*/true);
      asked += DecodeWithoutGain(100, cost, &self);
    }
    EXPECT_LT(asked * cost, 0.01 * 100'000 + cost + 2.1) << cost;
    EXPECT_GT(asked * cost, 0.003 * 100'000) << "it is tried now and then: " << cost;
  }
}

TEST(SelfProposalsTest, AQuestionIsPaidForWhenItIsAsked) {
  SelfPrior prior;
  prior.net_gain = {-0.5, -0.5};
  int asked = 0;
  for (int i = 0; i < 320; ++i) {  // requests that end at once
    SelfProposals self(Drafter::kEagle, &prior, /*has_rivals=*/true);
    asked += DecodeWithoutGain(1, 3, &self);
  }
  EXPECT_LE(asked, 3);
  EXPECT_GE(asked, 1);
}

TEST(SelfProposalsTest, QuestionsThatPayAreNotLimited) {
  SelfPrior prior;
  prior.net_gain = {-0.5, -0.5};
  prior.budget.OnAsked(1000);
  SelfProposals alone(Drafter::kEagle, &prior, /*has_rivals=*/false);
  EXPECT_GT(DecodeWithoutGain(40, 3, &alone), 1) << "requests without rivals ask nevertheless";
  SelfProposals self(Drafter::kEagle, &prior, /*has_rivals=*/true);
  EXPECT_EQ(DecodeWithoutGain(9000, 3, &self), 0);
  EXPECT_GT(DecodeWithoutGain(2000, 3, &self), 0) << "not all of a large debt is remembered";
  // It turns out that proposals are good.
  for (int i = 0; i < 10; ++i) self.OnRound({.gained = 3, .cost = 1});
  prior.budget.OnAsked(100);
  EXPECT_TRUE(self.IsWanted(kHere));
}

TEST(SelfProposalsTest, ANewRequestBeginsWithWhatOthersFound) {
  SelfPrior prior;
  for (int i = 0; i < 81; ++i) {
    SelfProposals other(Drafter::kMedusa, &prior, /*has_rivals=*/true);
    DecodeWithoutGain(100, 0.15, &other);
  }
  ASSERT_LT(prior.net_gain[static_cast<size_t>(kHere)], 0);
  int num_at_once = 0;
  for (int i = 0; i < 16; ++i) {
    SelfProposals other(Drafter::kMedusa, &prior, /*has_rivals=*/true);
    num_at_once += other.IsWanted(kHere, 4) ? 1 : 0;
    for (int round = 0; round < 64; ++round) other.OnRound({.gained = 0});
    EXPECT_TRUE(other.IsWanted(kHere)) << "each long request asks";
    other.OnRound({.gained = 0, .cost = 0.15});
    EXPECT_FALSE(other.IsWanted(kHere));
  }
  EXPECT_EQ(num_at_once, 2) << "every eighth request asks at once";
  const SelfProposals without_rivals(Drafter::kMedusa, &prior, /*has_rivals=*/false);
  EXPECT_TRUE(without_rivals.IsWanted(kHere, 4)) << "each request without rivals asks at once";
  SelfProposals beside_others(Drafter::kMedusa, &prior, /*has_rivals=*/true);
  beside_others.OnRound({.gained = 0, .cost = 0.15});
  for (int round = 0; round < 64; ++round) beside_others.OnRound({.gained = 0});
  EXPECT_TRUE(beside_others.IsWanted(kHere, 1));
  EXPECT_FALSE(beside_others.IsWanted(kHere, 4)) << "four slots would wait for the answer";
  SelfProposals second(Drafter::kMedusa, &prior, /*has_rivals=*/true);
  // A request with a size of its own teaches only itself.
  for (int i = 0; i < 500; ++i) second.OnRound({.gained = 1, .cost = 0.15, .teaches = false});
  EXPECT_TRUE(second.IsWanted(kHere));
  EXPECT_LT(prior.net_gain[1], 0);
  // It has become better.
  for (int i = 0; i < 200; ++i) second.OnRound({.gained = 1, .cost = 0.15});
  EXPECT_TRUE(second.IsWanted(kHere));
}

TEST(SelfProposalsTest, AsksWhereProposalsAreUsed) {
  // After a match, the next place has a match too, and its draft is used. Elsewhere, the proposal
  // is used.
  SelfPrior prior;
  SelfProposals self(Drafter::kEagle, &prior, /*has_rivals=*/true);
  int num_after_match = 0;
  int num_elsewhere = 0;
  for (int i = 0; i < 1000; ++i) {
    const AskingPlace place = i / 50 % 2 == 0 ? kHere : kAfterMatch;
    const bool is_wanted = self.IsWanted(place);
    (place == kHere ? num_elsewhere : num_after_match) += is_wanted ? 1 : 0;
    self.OnRound({.gained = place == kHere ? 1.5 : 0,
                  .place = place,
                  .cost = is_wanted ? std::optional<ProposalCost>(0.7) : std::nullopt});
  }
  EXPECT_EQ(num_elsewhere, 500);
  EXPECT_LT(num_after_match, 30);
  const SelfProposals other(Drafter::kEagle, &prior, /*has_rivals=*/true);
  EXPECT_GT(prior.net_gain[static_cast<size_t>(kHere)], 0.5);
  EXPECT_LT(prior.net_gain[static_cast<size_t>(kAfterMatch)], 0.15) << "it began with 0.3";
  EXPECT_TRUE(other.IsWanted(kHere));
}

TEST(SelfProposalsTest, AGainBelongsToThePlaceAtWhichTheProposalWasAskedFor) {
  SelfPrior prior;
  SelfProposals self(Drafter::kEagle, &prior, /*has_rivals=*/true);
  // Each proposal that is asked for after a match is used in a round of its own.
  for (int i = 0; i < 200; ++i) {
    self.OnRound({.gained = 0, .place = kAfterMatch, .cost = 0.5});
    self.OnRound({.gained = 2, .place = kHere, .cost = 0.5});
  }
  EXPECT_NEAR(prior.net_gain[static_cast<size_t>(kAfterMatch)], 1.5, 0.1);
  EXPECT_NEAR(prior.net_gain[static_cast<size_t>(kHere)], -0.5, 0.1);
}

}  // namespace
}  // namespace tandem::self_proposals_test
