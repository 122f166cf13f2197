#include "services/router/engine/rounds/propose.h"

#include <gtest/gtest.h>

#include <variant>

#include "tests/router/toy_round_state.h"

namespace tandem::propose_test {
namespace {

using testing::ToyRoundState;

constexpr PeerId kFirstModel = kDrafterPeer;
constexpr PeerId kSecondModel = kDrafterPeer + 1;

EngineOptions TwoDraftModels() {
  EngineOptions options;
  options.workers.num_drafters = 2;
  return options;
}

// Two slots decode. The first draft model drafts for one of them, and the second one is to draft
// for the other one afterwards.
class TwoModelsTest : public ::testing::Test {
 protected:
  TwoModelsTest() : toy_(2, TwoDraftModels()) {
    for (PeerId peer = 0; peer < state().slots.num_peers(); ++peer) toy_.toy.Attach(peer, 0);
    for (int i = 0; i < 2; ++i) toy_.toy.AddDecoding(8);
    ProposeBatch batch;
    batch.peer = kFirstModel;
    batch.session = state().slots.peer(kFirstModel).session();
    state().propose = batch;
    WaitingPropose waiting;
    waiting.peer = kSecondModel;
    waiting.session = state().slots.peer(kSecondModel).session();
    waiting.plans = {{.slot = 1,
                      .serial = state().slots[1].sequence->serial,
                      .num_tokens = 8,
                      .draft_length = 2}};
    cohort().stage = Cohort::Stage::kProposing;
    cohort().waiting = {waiting};
  }
  RoundState& state() { return toy_.state; }
  Cohort& cohort() { return state().cohorts[0]; }

  ToyRoundState toy_;
};

// The sessions know of a loss before the rounds do: when the first loss is handled, the second
// model has no session any more, though its slots look as if it had.
TEST_F(TwoModelsTest, AModelThatWasLostTogetherWithAnotherIsNotAsked) {
  ASSERT_EQ(state().workers.ready_session(kSecondModel), 0u);
  ASSERT_NE(state().slots.peer(kSecondModel).session(), 0u);
  OnDrafterLost(state(), kFirstModel, /*let_go=*/false, 1);
  for (const EngineCommand& command : state().out.commands) {
    EXPECT_FALSE(std::holds_alternative<SendToDrafter>(command));
  }
  EXPECT_FALSE(state().propose.has_value());
  EXPECT_EQ(cohort().stage, Cohort::Stage::kProposed) << "the round goes on without drafts";
  EXPECT_TRUE(cohort().waiting.empty());
  OnDrafterLost(state(), kSecondModel, /*let_go=*/false, 1);
  EXPECT_EQ(cohort().stage, Cohort::Stage::kProposed);
  EXPECT_EQ(state().slots.peer(kSecondModel).session(), 0u);
}

}  // namespace
}  // namespace tandem::propose_test
