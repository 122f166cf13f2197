#include "services/router/engine/rounds/rollback.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/router/engine/rounds/deliver.h"
#include "services/router/engine/rounds/verify.h"
#include "tests/router/toy_round_state.h"
#include "tests/router/toy_slots.h"

namespace tandem::rollback_test {
namespace {

using testing::ToyRoundState;
using testing::ToySlots;
using Ids = std::vector<uint32_t>;

constexpr uint32_t kTokens = 9;      // tokens of a sequence
constexpr uint32_t kNumPages = 64;   // pages of each worker, of four rows
constexpr uint32_t kRoomInPage = 3;  // rows that still fit into the last page of kTokens rows

// A pod with three slots and two cohorts, and both workers.
struct Pod {
  explicit Pod(uint32_t num_pages = kNumPages) : made(3, Options()) {
    made.AttachWorkers(num_pages);
  }

  static EngineOptions Options() {
    EngineOptions options;
    options.num_cohorts = 2;
    return options;
  }

  // A new sequence takes the first free slot. The drafter holds the rows of all its tokens, and
  // further rows of draft tokens.
  uint32_t Add(uint32_t num_extra_rows) {
    const uint32_t id = toy.AddDecoding(ToySlots::Request(kTokens), false, /*num_cohorts=*/2);
    toy.Hold(kDrafterPeer, id, kTokens, num_extra_rows);
    return id;
  }
  Proposal Draft(uint32_t id) {
    Proposal draft = toy.Draft(id, 4);
    draft.session = state.slots.peer(kDrafterPeer).session();
    return draft;
  }
  // The slot's draft waits for the verifier, and is returned.
  Proposal* Propose(uint32_t id) {
    Cohort& cohort = state.cohorts[state.slots[id].cohort];
    cohort.stage = Cohort::Stage::kProposed;
    cohort.proposals.resize(state.slots.size());
    cohort.proposals[id] = Draft(id);
    return &cohort.proposals[id];
  }
  // The verifier judges the slot's draft.
  VerifyBatch::Item& Judge(uint32_t id) {
    state.verify.emplace();
    state.verify->cohort = state.slots[id].cohort;
    state.verify->session = state.slots.verifier().session();
    state.cohorts[state.verify->cohort].stage = Cohort::Stage::kVerifying;
    VerifyBatch::Item& item = state.verify->items.emplace_back();
    item.slot = id;
    item.serial = toy.sequence(id).serial;
    item.end = toy.sequence(id).committed_len();
    item.begin = item.end - 1;
    item.sample = true;
    item.proposal = Draft(id);
    item.num_drafted = static_cast<uint32_t>(item.proposal.token_ids.size());
    return item;
  }
  // Carries out the verdict on the slot's draft.
  void Commit(uint32_t id, uint32_t num_accepted, const std::string& ring_error = {}) {
    v1::VerifyResult result;
    result.set_num_accepted(num_accepted);
    result.set_next_token_id(9);
    result.set_ring_error(ring_error);
    const VerifyBatch::Item item = Judge(id);
    state.verify.reset();
    CommitAndDeliver(state, item, result, 10);
    state.out.commands.clear();
  }

  Ids Due() const { return DueRollbacks(state, kDrafterPeer); }
  // Slots that the next command to the drafter rolls back.
  Ids Take(bool rides) {
    Ids ids;
    const std::optional<v1::UpdateSlots> updates = TakeUpdates(state, kDrafterPeer, rides);
    if (!updates.has_value()) return ids;
    for (const v1::SlotPoint& rollback : updates->rollbacks()) ids.push_back(rollback.slot());
    return ids;
  }
  // Rolls one slot back.
  v1::SlotPoint RollBack(uint32_t id) {
    return state.slots.peer(kDrafterPeer).RollBack(id, toy.sequence(id));
  }
  const WorkerSlot& held(uint32_t id) const { return state.slots.peer(kDrafterPeer).slot(id); }
  template <typename Command>
  std::vector<Command> Commands() const {
    std::vector<Command> found;
    for (const EngineCommand& command : state.out.commands) {
      if (const auto* one = std::get_if<Command>(&command)) found.push_back(*one);
    }
    return found;
  }

  ToyRoundState made;
  RoundState& state = made.state;
  ToySlots& toy = made.toy;
};

// ---------------------------------------------------------------- what is due

TEST(DueRollbacksTest, ASlotIsDueWhileItsDrafterHoldsRowsOfDraftTokens) {
  Pod pod;
  for (const uint32_t num_extra_rows : {3, 0, 1}) pod.Add(num_extra_rows);
  EXPECT_EQ(pod.Due(), (Ids{0, 2}));
}

TEST(DueRollbacksTest, TheVerifierIsNeverToldToRollBack) {
  Pod pod;
  pod.Add(0);
  pod.toy.Hold(kVerifierPeer, 0, kTokens - 1, 2);
  EXPECT_EQ(DueRollbacks(pod.state, kVerifierPeer), Ids());
  EXPECT_FALSE(TakeUpdates(pod.state, kVerifierPeer, /*rides=*/true).has_value());
}

TEST(DueRollbacksTest, NoRowIsDueWhileItsBlockAwaitsJudgment) {
  Pod pod;
  for (int i = 0; i < 3; ++i) pod.Add(3);
  Proposal* waiting = pod.Propose(1);
  EXPECT_EQ(pod.Due(), (Ids{0, 2})) << "the block waits for the verifier";
  pod.Judge(2);
  EXPECT_EQ(pod.Due(), Ids{0}) << "and the verifier judges another one";
  pod.state.verify.reset();
  EXPECT_EQ(pod.Due(), (Ids{0, 2}));
  *waiting = Proposal();
  EXPECT_EQ(pod.Due(), (Ids{0, 1, 2}));
}

TEST(DueRollbacksTest, ABlockKeepsTheRowsOfItsOwnLifeOnly) {
  Pod pod;
  pod.Add(3);
  pod.Add(3);
  pod.Propose(0);
  pod.Judge(1);
  EXPECT_EQ(pod.Due(), Ids());
  for (const uint32_t id : {0, 1}) pod.state.slots.Vacate(id);
  EXPECT_EQ(pod.Due(), Ids()) << "nobody has the slots";
  pod.Add(2);
  pod.Add(2);
  EXPECT_EQ(pod.Due(), (Ids{0, 1}));
}

TEST(DueRollbacksTest, ABlockKeepsTheRowsOfItsOwnSessionOnly) {
  Pod pod;
  pod.Add(3);
  pod.Add(3);
  Proposal* waiting = pod.Propose(0);
  VerifyBatch::Item& judged = pod.Judge(1);
  EXPECT_EQ(pod.Due(), Ids());
  ++waiting->session;
  EXPECT_EQ(pod.Due(), Ids{0});
  ++judged.proposal.session;
  EXPECT_EQ(pod.Due(), (Ids{0, 1}));
}

TEST(DueRollbacksTest, AVerdictMakesTheRowsOfRejectedTokensDue) {
  Pod pod;
  pod.Add(3);
  pod.Commit(0, 1);
  EXPECT_EQ(pod.Due(), Ids{0});
  const auto updates = TakeUpdates(pod.state, kDrafterPeer, /*rides=*/true);
  ASSERT_TRUE(updates.has_value());
  ASSERT_EQ(updates->rollbacks_size(), 1);
  EXPECT_EQ(updates->rollbacks(0).length(), kTokens + 1) << "the accepted token's row stays";
}

TEST(DueRollbacksTest, AFullyAcceptedBlockLeavesNothingToRollBack) {
  Pod pod;
  pod.Add(3);  // the drafter does not feed the last of the four tokens
  pod.Commit(0, 4);
  EXPECT_EQ(pod.Due(), Ids());
}

TEST(DueRollbacksTest, ABlockThatWasDroppedUnjudgedIsDue) {
  Pod dropped_by_the_router;
  dropped_by_the_router.Add(3);
  Release(dropped_by_the_router.state, dropped_by_the_router.Propose(0));
  EXPECT_EQ(dropped_by_the_router.Due(), Ids{0});

  Pod dropped_by_the_verifier;
  dropped_by_the_verifier.Add(3);
  dropped_by_the_verifier.Commit(0, 0, "sequence differs");
  EXPECT_EQ(dropped_by_the_verifier.Due(), Ids{0});
  const auto updates = TakeUpdates(dropped_by_the_verifier.state, kDrafterPeer, /*rides=*/true);
  ASSERT_TRUE(updates.has_value());
  EXPECT_EQ(updates->rollbacks(0).length(), kTokens);
}

TEST(DueRollbacksTest, ALostVerifierMakesItsBlocksDue) {
  Pod pod;
  pod.Add(3);
  pod.Add(3);
  pod.Judge(0);
  pod.Propose(1);
  EXPECT_EQ(pod.Due(), Ids());
  OnVerifierLost(pod.state, 5, 5);
  EXPECT_EQ(pod.Due(), (Ids{0, 1}));
  const auto updates = TakeUpdates(pod.state, kDrafterPeer, /*rides=*/true);
  ASSERT_TRUE(updates.has_value());
  ASSERT_EQ(updates->rollbacks_size(), 2);
  for (const v1::SlotPoint& rollback : updates->rollbacks()) {
    EXPECT_EQ(rollback.length(), kTokens) << "no token of the block was committed";
  }
}

TEST(DueRollbacksTest, ASlotThatWasClosedIsNotDue) {
  Pod pod;
  pod.Add(3);
  pod.state.slots.Vacate(0);
  EXPECT_EQ(pod.Due(), Ids());
  const auto updates = TakeUpdates(pod.state, kDrafterPeer, /*rides=*/true);
  ASSERT_TRUE(updates.has_value());
  EXPECT_EQ(updates->rollbacks_size(), 0);
  EXPECT_EQ(updates->closes_size(), 1);
}

TEST(DueRollbacksTest, ALostDrafterHoldsNothing) {
  Pod pod;
  pod.Add(3);
  pod.state.slots.peer(kDrafterPeer).Lose();
  EXPECT_EQ(pod.Due(), Ids());
}

// ---------------------------------------------------------------- what the next command brings

TEST(TakeUpdatesTest, ARollbackNamesExactlyTheCommittedRows) {
  Pod pod;
  pod.Add(0);
  pod.Add(3);
  pod.state.slots.peer(kDrafterPeer).Hold(1, 7, 12);  // as after a disagreement about its tokens
  const auto updates = TakeUpdates(pod.state, kDrafterPeer, /*rides=*/true);
  ASSERT_TRUE(updates.has_value());
  ASSERT_EQ(updates->rollbacks_size(), 1);
  const v1::SlotPoint& rollback = updates->rollbacks(0);
  EXPECT_EQ(rollback.slot(), 1u);
  EXPECT_EQ(rollback.slot_epoch(), pod.held(1).epoch);
  EXPECT_EQ(rollback.length(), 7u);
  EXPECT_EQ(rollback.prefix_hash(), pod.toy.sequence(1).prefix_hash(7));
  EXPECT_EQ(pod.held(1).cached_len, 7u);
  EXPECT_EQ(pod.held(1).held_len, 7u);
  EXPECT_EQ(updates->closes_size(), 0);
  EXPECT_EQ(pod.Take(/*rides=*/true), Ids()) << "it is sent once";
}

TEST(TakeUpdatesTest, ARollbackGetsItsNumberWhenItIsSent) {
  Pod pod;
  pod.Add(3);
  WorkerPeer& drafter = pod.state.slots.peer(kDrafterPeer);
  const uint64_t before = drafter.NextPoint(0, pod.toy.sequence(0)).command_number();
  EXPECT_EQ(pod.Due(), Ids{0});
  EXPECT_EQ(pod.Take(/*rides=*/false), Ids());
  EXPECT_EQ(pod.held(0).command_number, before) << "a rollback that waits has no number";
  const auto updates = TakeUpdates(pod.state, kDrafterPeer, /*rides=*/true);
  ASSERT_TRUE(updates.has_value());
  EXPECT_EQ(updates->rollbacks(0).command_number(), before + 1);
  EXPECT_EQ(drafter.NextPoint(0, pod.toy.sequence(0)).command_number(), before + 2)
      << "the item of the same command comes after it";
}

TEST(TakeUpdatesTest, ARollbackTravelsAloneOnlyIfItReturnsAWholePage) {
  Pod pod;
  pod.Add(kRoomInPage);
  pod.Add(kRoomInPage + 1);
  pod.Add(1);
  EXPECT_EQ(pod.Take(/*rides=*/false), Ids{1});
  EXPECT_EQ(pod.Due(), (Ids{0, 2})) << "the others wait for a batch";
  EXPECT_EQ(pod.Take(/*rides=*/true), (Ids{0, 2}));
}

TEST(TakeUpdatesTest, WithoutALimitOfPagesNoRollbackTravelsAlone) {
  Pod pod(/*num_pages=*/0);
  pod.Add(40);
  EXPECT_EQ(pod.Take(/*rides=*/false), Ids());
  EXPECT_EQ(pod.Take(/*rides=*/true), Ids{0});
}

TEST(TakeUpdatesTest, ThePagesOfARollbackCountAsFree) {
  Pod pod;
  pod.Add(kRoomInPage + 5);
  pod.state.slots.peer(kDrafterPeer).pages().Reported(20);
  pod.Take(/*rides=*/true);
  EXPECT_EQ(pod.state.slots.peer(kDrafterPeer).pages().num_free(), 22);
}

TEST(TakeUpdatesTest, RollbacksAndTheirRowsAreCounted) {
  Pod pod;
  pod.Add(3);
  pod.Add(1);
  pod.Take(/*rides=*/false);
  EXPECT_EQ(pod.state.out.counts.rollbacks[Worker::kDrafter], 0u) << "both wait";
  pod.Take(/*rides=*/true);
  EXPECT_EQ(pod.state.out.counts.rollbacks[Worker::kDrafter], 2u);
  EXPECT_EQ(pod.state.out.counts.rolled_back_rows[Worker::kDrafter], 4u);
  EXPECT_EQ(pod.state.out.counts.rollbacks[Worker::kVerifier], 0u);
}

TEST(TakeUpdatesTest, TheLogNamesTheSlotAndItsEpochAtTheDrafter) {
  Pod pod;
  pod.Add(0);
  pod.Add(0);
  pod.state.slots.peer(kDrafterPeer).BeginLife(1);  // as after an idle draft was closed
  pod.toy.Hold(kDrafterPeer, 1, kTokens, 3);
  pod.Take(/*rides=*/true);
  const std::vector<LogLine> lines = pod.Commands<LogLine>();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].level, LogLine::Level::kDebug);
  EXPECT_EQ(lines[0].text, "draft: rolls slot 1, epoch 2, back by 3 rows to 9");
  EXPECT_EQ(lines[0].request_id, "2");
  EXPECT_EQ(lines[0].slot, 1u);
  EXPECT_EQ(lines[0].epoch, 2u) << "at the drafter";
}

TEST(TakeUpdatesTest, ClosesTravelAlongOrAlone) {
  for (const bool rides : {false, true}) {
    for (PeerId peer = 0; peer < 2; ++peer) {
      Pod pod;
      pod.Add(0);
      EXPECT_FALSE(TakeUpdates(pod.state, peer, rides).has_value()) << "there is nothing to say";
      pod.state.slots.Vacate(0);
      const auto updates = TakeUpdates(pod.state, peer, rides);
      ASSERT_TRUE(updates.has_value());
      EXPECT_EQ(updates->rollbacks_size(), 0);
      ASSERT_EQ(updates->closes_size(), 1);
      EXPECT_EQ(updates->closes(0).slot(), 0u);
      EXPECT_EQ(updates->closes(0).slot_epoch(), 1u);
      EXPECT_FALSE(TakeUpdates(pod.state, peer, rides).has_value()) << "they are sent once";
    }
  }
}

// ---------------------------------------------------------------- what travels alone

TEST(SendUpdatesTest, UpdatesGoToTheSessionOfTheirWorkerUnderANewId) {
  Pod pod;
  pod.Add(kRoomInPage + 1);
  pod.Add(0);
  pod.state.slots.Vacate(1);
  const uint64_t last_id = pod.state.workers.NextCommandId();
  SendUpdates(pod.state, kDrafterPeer);
  SendUpdates(pod.state, kVerifierPeer);

  const auto to_drafter = pod.Commands<SendToDrafter>();
  ASSERT_EQ(to_drafter.size(), 1u);
  EXPECT_EQ(to_drafter[0].session, pod.state.slots.peer(kDrafterPeer).session());
  EXPECT_EQ(to_drafter[0].command.id(), last_id + 1);
  EXPECT_EQ(to_drafter[0].command.update_slots().rollbacks_size(), 1);
  EXPECT_EQ(to_drafter[0].command.update_slots().closes_size(), 1);

  const auto to_verifier = pod.Commands<SendToVerifier>();
  ASSERT_EQ(to_verifier.size(), 1u);
  EXPECT_EQ(to_verifier[0].session, pod.state.slots.verifier().session());
  EXPECT_EQ(to_verifier[0].command.id(), last_id + 2);
  EXPECT_EQ(to_verifier[0].command.update_slots().rollbacks_size(), 0);
  EXPECT_EQ(to_verifier[0].command.update_slots().closes_size(), 1);
}

TEST(SendUpdatesTest, ARollbackThatReturnsNoPageIsNotSent) {
  Pod pod;
  pod.Add(kRoomInPage);
  for (PeerId peer = 0; peer < 2; ++peer) SendUpdates(pod.state, peer);
  EXPECT_TRUE(pod.state.out.commands.empty());
  EXPECT_EQ(pod.Due(), Ids{0});
}

TEST(SendUpdatesTest, AWorkerThatIsNotReadyIsSentNothing) {
  for (PeerId peer = 0; peer < 2; ++peer) {
    Pod pod;
    pod.Add(kRoomInPage + 1);
    pod.Add(0);
    pod.state.slots.Vacate(1);
    pod.state.workers.Drop(peer, SessionChange::kHung, "why", 2);
    pod.state.out.commands.clear();
    SendUpdates(pod.state, peer);
    EXPECT_TRUE(pod.state.out.commands.empty());
    EXPECT_EQ(pod.Due(), Ids{0}) << "nothing was taken out of the books";
  }
}

// ---------------------------------------------------------------- the answers

// The drafter carried the rollback out.
v1::SlotState Done(const v1::SlotPoint& rollback) {
  v1::SlotState slot;
  slot.set_slot(rollback.slot());
  slot.set_slot_epoch(rollback.slot_epoch());
  slot.set_command_number(rollback.command_number());
  slot.set_cached_len(rollback.length());
  slot.set_prefix_hash(rollback.prefix_hash());
  return slot;
}
// The drafter refused the rollback, and holds these rows.
v1::SlotState Refused(const v1::SlotPoint& rollback, uint32_t cached_len, uint64_t prefix_hash) {
  v1::SlotState slot = Done(rollback);
  slot.set_code(v1::WORKER_CODE_ABORTED);
  slot.set_cached_len(cached_len);
  slot.set_prefix_hash(prefix_hash);
  return slot;
}
v1::UpdateSlotsReply Reply(std::initializer_list<v1::SlotState> slots) {
  v1::UpdateSlotsReply reply;
  for (const v1::SlotState& slot : slots) *reply.add_rollbacks() = slot;
  return reply;
}

TEST(CheckRollbacksTest, AnAnswerHoldsTheRowsThatWereAskedFor) {
  Pod pod;
  pod.Add(3);
  pod.Add(2);
  const v1::SlotState first = Done(pod.RollBack(0));
  v1::SlotState second = Done(pod.RollBack(1));
  EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({})), absl::OkStatus());
  EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({first, second})), absl::OkStatus());
  for (const uint32_t cached_len : {8, 10}) {
    second.set_cached_len(cached_len);
    EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({first, second})).message(),
              "holds " + std::to_string(cached_len) + " rows after a rollback to 9");
  }
  EXPECT_EQ(pod.held(1).held_len, kTokens) << "a check changes nothing";
}

TEST(CheckRollbacksTest, AnAnswerIsAboutASlotThatThereIs) {
  Pod pod;
  pod.Add(3);
  v1::SlotState answer = Done(pod.RollBack(0));
  answer.set_slot(3);
  EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({answer})).message(),
            "answered a rollback of slot 3 of 3");
  answer.set_slot(2);
  EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({answer})), absl::OkStatus());
}

TEST(CheckRollbacksTest, ARefusalMayHoldOtherRows) {
  Pod pod;
  pod.Add(3);
  const v1::SlotState refused = Refused(pod.RollBack(0), 5, 4711);
  EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({refused})), absl::OkStatus());
}

TEST(TakeRollbacksTest, ARollbackThatWasCarriedOutChangesNothingMore) {
  Pod pod;
  pod.Add(3);
  TakeRollbacks(pod.state, kDrafterPeer, Reply({Done(pod.RollBack(0))}));
  EXPECT_EQ(pod.held(0).cached_len, kTokens);
  EXPECT_EQ(pod.held(0).held_len, kTokens);
  EXPECT_TRUE(pod.held(0).open);
}

TEST(TakeRollbacksTest, ARefusalIsBelievedIfItsRowsAreOfTheSequence) {
  Pod pod;
  pod.Add(3);
  const uint64_t hash = pod.toy.sequence(0).prefix_hash(5);
  TakeRollbacks(pod.state, kDrafterPeer, Reply({Refused(pod.RollBack(0), 5, hash)}));
  EXPECT_EQ(pod.held(0).cached_len, 5u);
  EXPECT_EQ(pod.held(0).held_len, 5u);
}

TEST(TakeRollbacksTest, ARollbackThatWasRefusedIsNotRepeated) {
  Pod pod;
  pod.Add(3);
  TakeRollbacks(pod.state, kDrafterPeer, Reply({Refused(pod.RollBack(0), 12, 4711)}));
  EXPECT_EQ(pod.held(0).cached_len, 0u) << "the next item brings all tokens";
  EXPECT_EQ(pod.Due(), Ids());
}

// An answer that breaks the protocol if it counts, and an answer that changes the books if it does.
void ExpectNotToCount(Pod& pod, v1::SlotState wrong, v1::SlotState refused) {
  EXPECT_EQ(CheckRollbacks(pod.state, kDrafterPeer, Reply({std::move(wrong)})), absl::OkStatus());
  const WorkerSlot before = pod.held(0);
  TakeRollbacks(pod.state, kDrafterPeer, Reply({std::move(refused)}));
  EXPECT_EQ(pod.held(0).cached_len, before.cached_len);
  EXPECT_EQ(pod.held(0).held_len, before.held_len);
  EXPECT_EQ(pod.held(0).epoch, before.epoch);
}

TEST(TakeRollbacksTest, AnAnswerCountsOnlyIfItAnswersTheNewestCommand) {
  Pod pod;
  pod.Add(3);
  const v1::SlotPoint former = pod.RollBack(0);
  pod.toy.Hold(kDrafterPeer, 0, kTokens, 2);
  const v1::SlotPoint rollback = pod.RollBack(0);
  v1::SlotState wrong = Done(former);
  wrong.set_cached_len(7);
  ExpectNotToCount(pod, wrong, Refused(former, 7, 4711));

  wrong = Done(rollback);
  wrong.set_cached_len(7);
  EXPECT_FALSE(CheckRollbacks(pod.state, kDrafterPeer, Reply({wrong})).ok())
      << "this one counts by now";
  pod.state.slots.peer(kDrafterPeer).NextPoint(0, pod.toy.sequence(0));
  ExpectNotToCount(pod, wrong, Refused(rollback, 7, 4711));
}

TEST(TakeRollbacksTest, AnAnswerToAFormerLifeDoesNotCount) {
  Pod pod;
  pod.Add(3);
  const v1::SlotPoint rollback = pod.RollBack(0);
  v1::SlotState wrong = Done(rollback);
  wrong.set_cached_len(7);
  const v1::SlotState refused = Refused(rollback, 7, 4711);
  pod.state.slots.Vacate(0);
  ExpectNotToCount(pod, wrong, refused);
  pod.toy.Add(5);
  ExpectNotToCount(pod, wrong, refused);
  EXPECT_FALSE(pod.held(0).open) << "the drafter was not told of this life yet";
}

}  // namespace
}  // namespace tandem::rollback_test
