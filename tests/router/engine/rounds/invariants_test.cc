#include "services/router/engine/rounds/invariants.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/router/engine_driver.h"
#include "tests/router/toy_round_state.h"
#include "tests/router/toy_slots.h"

namespace tandem::invariants_test {
namespace {

using testing::EngineDriver;
using testing::GreedyRequest;
using testing::Sampled;
using testing::ToyRoundState;
using testing::ToySlots;

constexpr uint32_t kTokens = 9;  // tokens of the sequence in slot 0

// The books of a pod with two slots. Slot 0 has a sequence that decodes, slot 1 is free.
struct Books : ToyRoundState {
  explicit Books(bool attach = true) : ToyRoundState(2, Options()) {
    if (attach) AttachWorkers();
    toy.Add(ToySlots::Request(kTokens, 20), /*is_replay=*/false, /*num_cohorts=*/2);
    if (!attach) return;
    Hold(kVerifierPeer, 0, kTokens - 1, kTokens - 1);
    Hold(kDrafterPeer, 0, kTokens, kTokens + 2);
  }

  static EngineOptions Options() {
    EngineOptions options;
    options.num_cohorts = 2;
    return options;
  }

  void Hold(PeerId peer, uint32_t slot, uint32_t cached_len, uint32_t held_len) {
    state.slots.peer(peer).Open(slot);
    state.slots.peer(peer).Hold(slot, cached_len, held_len);
  }
  void Propose(uint32_t cohort) {
    state.cohorts[cohort].stage = Cohort::Stage::kProposing;
    state.propose.emplace();
    state.propose->cohort = cohort;
    state.propose->session = state.slots.peer(kDrafterPeer).session();
  }
  void Verify(uint32_t cohort) {
    state.cohorts[cohort].stage = Cohort::Stage::kVerifying;
    state.verify.emplace();
    state.verify->cohort = cohort;
    state.verify->session = state.slots.verifier().session();
  }
  std::string Broken() const { return BrokenInvariant(state); }
};

// ---------------------------------------------------------------- normal states

TEST(InvariantsTest, HoldBeforeAnyWorkerAttached) {
  Books books(/*attach=*/false);
  EXPECT_EQ(books.Broken(), "");
  AssertInvariants(books.state);
}

TEST(InvariantsTest, HoldWhileASlotDecodesAndBatchesAreUnderWay) {
  Books books;
  EXPECT_EQ(books.Broken(), "");
  books.Propose(0);
  EXPECT_EQ(books.Broken(), "");
  books.Verify(1);
  EXPECT_EQ(books.Broken(), "");
  books.state.propose.reset();
  books.state.cohorts[0].stage = Cohort::Stage::kProposed;
  EXPECT_EQ(books.Broken(), "");
  books.state.slots.Vacate(0);
  EXPECT_EQ(books.Broken(), "");
  AssertInvariants(books.state);
}

TEST(InvariantsTest, HoldAfterEachEventWhateverDies) {
  EngineOptions options;
  options.num_cohorts = 2;
  options.draft_length = 4;
  options.max_lost_rounds = 1000;
  EngineDriver driver(options);
  driver.verifier.options.num_pages = 30;
  driver.Start();
  for (int i = 0; i < 6; ++i) {
    GenerationRequest request = GreedyRequest({1, 2, 3 + i, 4, 5, 6, 7}, 60);
    driver.Send(i % 2 == 0 ? std::move(request) : Sampled(std::move(request)));
  }
  EXPECT_TRUE(driver.Run([&](int step) {
    ASSERT_EQ(BrokenInvariant(driver.engine().state()), "") << step;
    if (step % 50 == 20) driver.Kill(Worker::kDrafter);
    if (step % 50 == 40) driver.Kill(Worker::kVerifier);
    if (step % 10 == 5 && step < 500) driver.Cancel(1 + static_cast<CallId>(step) / 100);
    driver.Revive(Worker::kDrafter);
    driver.Revive(Worker::kVerifier);
  }));
  EXPECT_EQ(BrokenInvariant(driver.engine().state()), "");
  EXPECT_GT(driver.fleet.State().counts.losses[Worker::kVerifier], 0u);
}

// ---------------------------------------------------------------- planted ones

TEST(InvariantsTest, AWorkerHoldsTheRowsThatTheRouterCountsOn) {
  Books books;
  books.Hold(kVerifierPeer, 0, 5, 4);
  EXPECT_EQ(books.Broken(),
            "verifier, slot 0: holds fewer rows than are counted on (5 rows of committed tokens, "
            "4 rows in all)");
  books.Hold(kVerifierPeer, 0, 5, 5);
  EXPECT_EQ(books.Broken(), "");
  books.Hold(kDrafterPeer, 0, 5, 4);
  EXPECT_EQ(books.Broken(),
            "draft, slot 0: holds fewer rows than are counted on (5 rows of committed tokens, "
            "4 rows in all)");
}

TEST(InvariantsTest, AFreeSlotIsClosedAndEmpty) {
  for (const PeerId peer : {kVerifierPeer, kDrafterPeer}) {
    const std::string worker = WorkerName(KindOf(peer));
    Books open;
    open.state.slots.peer(peer).Open(1);
    EXPECT_EQ(open.Broken(), worker +
                                 ", slot 1: is open without a sequence (0 rows of committed "
                                 "tokens, 0 rows in all)");
    Books full;
    full.state.slots.peer(peer).Hold(1, 0, 3);
    EXPECT_EQ(full.Broken(), worker +
                                 ", slot 1: holds rows without a sequence (0 rows of committed "
                                 "tokens, 3 rows in all)");
  }
}

TEST(InvariantsTest, ASlotThatWasNotOpenedIsEmpty) {
  Books books;
  auto sequence = books.state.slots.Vacate(0);
  books.state.slots.Occupy(0, std::move(sequence), 2);
  EXPECT_EQ(books.Broken(), "");
  books.state.slots.verifier().Hold(0, 2, 3);
  EXPECT_EQ(books.Broken(),
            "verifier, slot 0: holds rows of a slot that was not opened (2 rows of committed "
            "tokens, 3 rows in all)");
}

TEST(InvariantsTest, TheVerifierHasNoRowOfThePendingToken) {
  Books books;
  books.Hold(kVerifierPeer, 0, kTokens, kTokens);
  EXPECT_EQ(books.Broken(),
            "verifier, slot 0: holds more rows than there are tokens for it (9 rows of committed "
            "tokens, 9 rows in all)");
  books.Hold(kVerifierPeer, 0, kTokens - 1, kTokens - 1);
  EXPECT_EQ(books.Broken(), "") << "the drafter may have it";
  books.Hold(kDrafterPeer, 0, kTokens + 1, kTokens + 1);
  EXPECT_EQ(books.Broken(),
            "draft, slot 0: holds more rows than there are tokens for it (10 rows of committed "
            "tokens, 10 rows in all)");
}

TEST(InvariantsTest, WithoutASessionNoSlotIsOpen) {
  Books books(/*attach=*/false);
  books.state.slots.peer(kDrafterPeer).Open(0);
  EXPECT_EQ(books.Broken(),
            "draft, slot 0: is open without a session (0 rows of committed tokens, 0 rows in all)");
}

TEST(InvariantsTest, ACohortWaitsForABatchWhileTheBatchIsUnderWay) {
  Books lost_propose;
  lost_propose.state.cohorts[1].stage = Cohort::Stage::kProposing;
  EXPECT_EQ(lost_propose.Broken(), "cohort 1: its stage and the Propose under way disagree");
  Books lost_verify;
  lost_verify.state.cohorts[1].stage = Cohort::Stage::kVerifying;
  EXPECT_EQ(lost_verify.Broken(), "cohort 1: its stage and the Verify under way disagree");

  for (const Cohort::Stage stage : {Cohort::Stage::kIdle, Cohort::Stage::kProposed}) {
    Books forgotten_propose;
    forgotten_propose.Propose(0);
    forgotten_propose.state.cohorts[0].stage = stage;
    EXPECT_EQ(forgotten_propose.Broken(), "cohort 0: its stage and the Propose under way disagree");
    Books forgotten_verify;
    forgotten_verify.Verify(0);
    forgotten_verify.state.cohorts[0].stage = stage;
    EXPECT_EQ(forgotten_verify.Broken(), "cohort 0: its stage and the Verify under way disagree");
  }
  Books other_cohort;
  other_cohort.Verify(0);
  other_cohort.state.verify->cohort = 1;
  EXPECT_EQ(other_cohort.Broken(), "cohort 0: its stage and the Verify under way disagree");
}

TEST(InvariantsTest, ABatchBelongsToTheSessionThatTheSlotsDescribe) {
  Books proposing;
  proposing.Propose(0);
  ++proposing.state.propose->session;
  EXPECT_EQ(proposing.Broken(), "a Propose of a former session is under way");
  Books verifying;
  verifying.Verify(0);
  ++verifying.state.verify->session;
  EXPECT_EQ(verifying.Broken(), "a Verify of a former session is under way");
}

TEST(InvariantsTest, TheSlotsDescribeTheSessionThatIsReady) {
  for (const PeerId peer : {kVerifierPeer, kDrafterPeer}) {
    Books books;
    books.state.slots.peer(peer).Attach(1000, *books.state.workers.info(peer));
    EXPECT_EQ(books.Broken(),
              std::string(WorkerName(KindOf(peer))) + ": the slots describe a former session");
    Books lost;
    lost.state.workers.Drop(peer, SessionChange::kHung, "why", 2);
    EXPECT_EQ(lost.Broken(),
              std::string(WorkerName(KindOf(peer))) + ": the slots describe a former session");
  }
}

TEST(InvariantsDeathTest, ABrokenInvariantEndsTheProcess) {
  Books books;
  books.Hold(kVerifierPeer, 0, 5, 4);
  EXPECT_DEATH(AssertInvariants(books.state),
               "router: an invariant of the engine does not hold: verifier, slot 0: holds fewer "
               "rows than are counted on \\(5 rows of committed tokens, 4 rows in all\\)");
}

}  // namespace
}  // namespace tandem::invariants_test
