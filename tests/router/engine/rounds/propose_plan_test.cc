#include "services/router/engine/rounds/propose_plan.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <ostream>
#include <vector>

#include "services/router/engine/rounds/round_state.h"
#include "tests/router/toy_slots.h"

namespace tandem::propose_plan_test {
namespace {

using testing::ToySlots;

// Plans as values that can be compared: slot, committed tokens, draft length.
struct Row {
  uint32_t slot;
  uint32_t num_tokens;
  uint32_t draft_length;

  bool operator==(const Row&) const = default;
  friend void PrintTo(const Row& row, std::ostream* out) {
    *out << "slot " << row.slot << ": " << row.num_tokens << " + " << row.draft_length;
  }
};
using Rows = std::vector<Row>;

constexpr DraftRoom MuchRoom() {
  DraftRoom room;
  room.target_context = 4096;
  room.models[0] = {.ready = true, .num_slots = 8, .context = 4096, .ring_entries = 8};
  return room;
}
constexpr DraftRoom kMuchRoom = MuchRoom();

GenerationRequest Sampled(GenerationRequest request) {
  request.open.mutable_sampling()->set_temperature(1);
  return request;
}

// A slot that decodes, and of which the drafter lacks this number of tokens.
uint32_t AddLacking(ToySlots* toy, uint32_t drafter_lack, GenerationRequest request) {
  const uint32_t id = toy->AddDecoding(std::move(request));
  toy->Hold(kDrafterPeer, id, toy->sequence(id).committed_len() - drafter_lack);
  return id;
}
uint32_t AddLacking(ToySlots* toy, uint32_t drafter_lack, uint32_t num_tokens = 9) {
  return AddLacking(toy, drafter_lack, ToySlots::Request(num_tokens));
}

// ---------------------------------------------------------------- candidates

DraftChoice Gather(ToySlots* toy, const DraftRoom& room = kMuchRoom,
                   const EngineOptions& options = {}, uint32_t cohort = 0) {
  return GatherCandidates(options, room, cohort, &toy->slots).front();
}

TEST(GatherCandidatesTest, ASlotThatDecodesIsACandidate) {
  ToySlots toy(2);
  toy.AddDecoding(5);
  toy.slots.Vacate(0);
  toy.AddDecoding(5);
  const uint32_t id = AddLacking(&toy, 3, ToySlots::Request(9, 50));
  const DraftChoice choice = Gather(&toy);
  EXPECT_EQ(choice.ids, (std::vector<uint32_t>{0, 1}));
  ASSERT_EQ(choice.candidates.size(), 2u);
  const DraftCandidate& candidate = choice.candidates[1];
  EXPECT_EQ(candidate.acceptance, &toy.sequence(id).models->estimate(0));
  EXPECT_EQ(candidate.serial, toy.sequence(id).serial);
  EXPECT_EQ(candidate.limit, 16u);
  EXPECT_EQ(candidate.fixed, std::nullopt);
  EXPECT_EQ(candidate.context, 9u);
  EXPECT_EQ(candidate.drafter_lack, 3u);
  EXPECT_EQ(candidate.remaining_tokens, 50u);
  EXPECT_EQ(candidate.length, 0u);
  EXPECT_EQ(choice.rest.plain_rows, 0u);
  EXPECT_EQ(choice.rest.prompt_rows, 0u);
  EXPECT_FALSE(choice.rest.overlapped);
}

TEST(GatherCandidatesTest, ThePaceCountsWhereNoMatchIsFound) {
  ToySlots toy(2);
  LookupPriors priors;
  const auto pace_of = [&](Drafter drafter, const std::vector<int32_t>& prediction) {
    const uint32_t id = AddLacking(&toy, 1);
    Sequence& sequence = toy.sequence(id);
    sequence.lookups = std::make_unique<RequestLookups>(
        DrafterSet(drafter), NgramOptions(), AcceptanceMode::kGreedy, sequence.prompt_len(), 20,
        prediction, &priors);
    (void)sequence.lookups->Advance(sequence.tokens(), 100);
    for (int i = 0; i < 3; ++i) {
      sequence.lookups->pace().OnSearch(/*has_match=*/i == 1);
      sequence.lookups->pace().OnRound(1 + i, 6, 0.5);
    }
    const DraftChoice choice = Gather(&toy);
    toy.slots.Vacate(id);
    return choice.candidates.at(0).pace;
  };
  EXPECT_EQ(pace_of(Drafter::kRecycling, {}), 3) << "six tokens in two plain rounds";
  EXPECT_EQ(pace_of(Drafter::kPrediction, {1, 2, 3}), 0) << "the prediction has a match";
}

// Gives the sequence a prediction, whose first tokens are found now.
void PredictOutput(Sequence* sequence, LookupPriors* priors) {
  sequence->lookups = std::make_unique<RequestLookups>(
      DrafterSet(Drafter::kPrediction), NgramOptions(), AcceptanceMode::kGreedy,
      sequence->prompt_len(), 20, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}, priors);
  (void)sequence->lookups->Advance(sequence->tokens(), 100);
}

TEST(GatherCandidatesTest, AFoundDraftKnowsWhatTheModelIsWorth) {
  ToySlots toy(2);
  LookupPriors priors;
  const auto rival_worth = [&](double pass_cost, bool may_use_model) {
    GenerationRequest request = ToySlots::Request(9);
    if (!may_use_model) request.drafters = DrafterSet(Drafter::kPrediction);
    const uint32_t id = AddLacking(&toy, 1, std::move(request));
    Sequence& sequence = toy.sequence(id);
    PredictOutput(&sequence, &priors);
    DraftRoom room = kMuchRoom;
    room.models[0].pass_cost = pass_cost;
    const DraftChoice choice = Gather(&toy, room);
    toy.slots.Vacate(id);
    EXPECT_FALSE(choice.found.at(0).draft.token_ids.empty());
    return choice.found.at(0).rival_worth;
  };
  EXPECT_EQ(rival_worth(0.15, /*may_use_model=*/false), 0);
  EXPECT_GT(rival_worth(0.15, /*may_use_model=*/true), 0.5);
  EXPECT_LT(rival_worth(0.4, /*may_use_model=*/true), rival_worth(0.15, /*may_use_model=*/true));
  EXPECT_EQ(rival_worth(2, /*may_use_model=*/true), 0) << "a pass costs more than it gains";
}

TEST(GatherCandidatesTest, AModelThatHasNotDraftedForLongTakesATurnOfWhatWasFound) {
  ToySlots toy(1);
  LookupPriors priors;
  const uint32_t id = AddLacking(&toy, 1);
  Sequence& sequence = toy.sequence(id);
  PredictOutput(&sequence, &priors);
  DraftRoom room = kMuchRoom;
  room.models[0].pass_cost = 2;  // what was found is worth more
  EXPECT_TRUE(Gather(&toy, room).candidates.at(0).has_draft);
  for (int i = 0; i < 8; ++i) sequence.models->estimate(0).Observe({});
  const DraftChoice turn = Gather(&toy, room);
  EXPECT_FALSE(turn.candidates.at(0).has_draft);
  EXPECT_TRUE(turn.found.at(0).tries_model);
  EXPECT_EQ(turn.candidates.at(0).fixed, 2u);
  EXPECT_TRUE(Gather(&toy, room).found.at(0).tries_model) << "it has not had its turn yet";
  sequence.models->OnTurn(0, /*drafts=*/true);
  EXPECT_TRUE(Gather(&toy, room).candidates.at(0).has_draft) << "the next turn comes later";
  for (int i = 0; i < 20; ++i) (void)Gather(&toy, room);
  EXPECT_TRUE(Gather(&toy, room).found.at(0).tries_model);
  room.row_cost = 5;
  const DraftChoice neither = Gather(&toy, room);
  EXPECT_FALSE(neither.found.at(0).tries_model) << "no draft is worth anything";
  ASSERT_TRUE(neither.found.at(0).is_trial) << "what was found is only tried";
  sequence.lookups->OnTrial(neither.found.at(0).draft, /*is_used=*/true);
  EXPECT_FALSE(Gather(&toy, room).candidates.at(0).has_draft) << "the controller decides";
  toy.slots.Vacate(id);
  GenerationRequest fixed = ToySlots::Request(9);
  fixed.draft_length = 2;
  PredictOutput(&toy.sequence(AddLacking(&toy, 1, fixed)), &priors);
  EXPECT_TRUE(Gather(&toy, room).candidates.at(0).has_draft)
      << "a fixed length takes what is there";
}

TEST(GatherCandidatesTest, ThePromptsOfTheRoundAreCounted) {
  ToySlots toy(2);
  toy.Add(30);
  toy.Add(1000);
  toy.Hold(kVerifierPeer, 1, 100);
  const DraftChoice choice = Gather(&toy);
  EXPECT_TRUE(choice.candidates.empty()) << "there is nothing to draft after";
  EXPECT_EQ(choice.rest.prompt_slots, 2u);
  EXPECT_EQ(choice.rest.prompt_rows, 30u + 512u) << "a batch has at most --step-rows rows";
  EXPECT_EQ(choice.rest.prompt_attended, Attended(0, 30) + Attended(100, 512));
  EXPECT_EQ(choice.rest.plain_rows, 0u);
}

TEST(GatherCandidatesTest, TheOtherCohortOnlyOverlaps) {
  ToySlots toy(2);
  toy.AddDecoding(ToySlots::Request(9), false, /*num_cohorts=*/2);
  EXPECT_FALSE(Gather(&toy).rest.overlapped);
  toy.AddDecoding(ToySlots::Request(9), false, /*num_cohorts=*/2);
  const DraftChoice choice = Gather(&toy, kMuchRoom, {}, 1);
  EXPECT_EQ(choice.ids, std::vector<uint32_t>{1});
  EXPECT_EQ(choice.rest.cohort, 1u);
  EXPECT_TRUE(choice.rest.overlapped);
}

TEST(GatherCandidatesTest, AReplayNeverDraftsAndCountsOnlyWhileItRuns) {
  ToySlots toy(2);
  toy.AddDecoding(ToySlots::Request(9), /*is_replay=*/true);
  DraftChoice choice = Gather(&toy);
  EXPECT_TRUE(choice.candidates.empty());
  EXPECT_EQ(choice.rest.plain_rows, 1u);
  EXPECT_EQ(choice.rest.plain_attended, 9);
  toy.AddDecoding(9);
  choice = Gather(&toy);
  EXPECT_EQ(choice.ids, std::vector<uint32_t>{1});
  EXPECT_EQ(choice.rest.plain_rows, 0u);
}

TEST(GatherCandidatesTest, TheLimitIsTheLeastThatTheRequestAndTheContextsLeave) {
  const auto limit = [](GenerationRequest request, const DraftRoom& room,
                        uint32_t verifier_pages = 0, uint32_t drafter_pages = 0,
                        uint32_t max_draft_length = 16) {
    ToySlots toy(1);
    toy.Attach(kVerifierPeer, verifier_pages);
    toy.Attach(kDrafterPeer, drafter_pages);
    toy.AddDecoding(std::move(request));
    EngineOptions options;
    options.workers.max_draft_length = max_draft_length;
    const DraftChoice choice = Gather(&toy, room, options);
    return choice.candidates.empty() ? 0 : choice.candidates[0].limit;
  };
  const GenerationRequest request = ToySlots::Request(20, 100);
  EXPECT_EQ(limit(request, kMuchRoom), 16u);
  EXPECT_EQ(limit(request, kMuchRoom, 0, 0, 5), 5u);
  EXPECT_EQ(limit(ToySlots::Request(20, 4), kMuchRoom), 3u) << "the last token is drawn";
  DraftRoom room = kMuchRoom;
  room.target_context = 25;
  EXPECT_EQ(limit(request, room), 4u);
  room = kMuchRoom;
  room.models[0].context = 25;
  EXPECT_EQ(limit(request, room), 5u);
  EXPECT_EQ(limit(request, kMuchRoom, 6), 3u) << "six pages of the verifier hold 24 rows";
  EXPECT_EQ(limit(request, kMuchRoom, 0, 6), 4u) << "six pages of the drafter hold 24 rows";
}

// What becomes of one slot that cannot draft.
Fallback WhyNot(ToySlots* toy, const DraftRoom& room) {
  const DraftChoice choice = Gather(toy, room);
  EXPECT_TRUE(choice.candidates.empty());
  EXPECT_EQ(choice.rest.plain_rows, 1u);
  EXPECT_EQ(choice.rest.plain_attended, toy->sequence(0).committed_len());
  return toy->slots[0].fallback;
}

TEST(GatherCandidatesTest, ARequestThatTheDrafterCannotServeIsGivenUp) {
  ToySlots toy(1);
  toy.AddDecoding(9);
  DraftRoom room = kMuchRoom;
  room.models[0].num_slots = 1;
  EXPECT_EQ(Gather(&toy, room).candidates.size(), 1u);
  room.models[0].num_slots = 0;
  EXPECT_EQ(WhyNot(&toy, room), Fallback::kGivenUp) << "the drafter has no such slot";
  toy.sequence(0).faults.drafter(0).Stop();
  EXPECT_EQ(WhyNot(&toy, kMuchRoom), Fallback::kGivenUp);
}

TEST(GatherCandidatesTest, ASampledRequestNeedsAnEntryOfTheRing) {
  DraftRoom room = kMuchRoom;
  room.models[0].ring_entries = 0;
  ToySlots sampled(1);
  sampled.AddDecoding(Sampled(ToySlots::Request(9)));
  EXPECT_EQ(WhyNot(&sampled, room), Fallback::kNoRing);
  room.models[0].ring_entries = 1;
  EXPECT_EQ(Gather(&sampled, room).candidates.size(), 1u);
  ToySlots greedy(1);
  greedy.AddDecoding(9);
  room.models[0].ring_entries = 0;
  EXPECT_EQ(Gather(&greedy, room).candidates.size(), 1u);
}

TEST(GatherCandidatesTest, ARequestNearItsLastTokenHasNoRoom) {
  ToySlots toy(1);
  toy.AddDecoding(ToySlots::Request(9, 1));
  EXPECT_EQ(WhyNot(&toy, kMuchRoom), Fallback::kNoRoom);
}

// ---------------------------------------------------------------- several draft models

class DraftModelsTest : public ::testing::Test {
 protected:
  DraftModelsTest() {
    room_.models[1] = room_.models[0];
    room_.models[0].name = "first";
    room_.models[1].name = "second";
  }

  // A slot that decodes, and of which neither drafter lacks more than the pending token.
  uint32_t Add(GenerationRequest request = ToySlots::Request(9)) {
    const uint32_t id = AddLacking(&toy_, 1, std::move(request));
    toy_.Hold(kDrafterPeer + 1, id, toy_.sequence(id).committed_len() - 1);
    return id;
  }
  // Drafts of this model were accepted, or rejected.
  void Show(uint32_t id, size_t model, bool accepted) {
    for (int i = 0; i < 20; ++i) {
      toy_.sequence(id).models->estimate(model).Observe(JudgedChain(4, accepted ? 4 : 0));
    }
  }
  std::vector<DraftChoice> Choices() { return GatherCandidates({}, room_, 0, &toy_.slots); }
  // Slots that draft with each model.
  std::vector<std::vector<uint32_t>> Users() {
    std::vector<std::vector<uint32_t>> users;
    for (const DraftChoice& choice : Choices()) users.push_back(choice.ids);
    return users;
  }

  using Slots = std::vector<std::vector<uint32_t>>;
  ToySlots toy_{8, 2};
  DraftRoom room_ = kMuchRoom;
};

TEST_F(DraftModelsTest, EachSlotDraftsWithTheModelThatItsRequestAcceptsMost) {
  for (int i = 0; i < 4; ++i) Add();
  for (uint32_t id = 0; id < 4; ++id) {
    Show(id, 0, id % 2 == 0);
    Show(id, 1, id % 2 == 1);
  }
  room_.num_slots = 4;
  EXPECT_EQ(Users(), (Slots{{0, 2}, {1, 3}}));
  const std::vector<DraftChoice> choices = Choices();
  EXPECT_EQ(choices[0].peer, kDrafterPeer);
  EXPECT_EQ(choices[1].peer, kDrafterPeer + 1);
  EXPECT_EQ(choices[1].candidates[0].acceptance, &toy_.sequence(1).models->estimate(1));
  for (const DraftChoice& choice : choices) {
    EXPECT_EQ(choice.rest.plain_rows, 2u) << "the slots that draft with the other model";
    EXPECT_EQ(choice.rest.plain_attended, 18);
  }
}

TEST_F(DraftModelsTest, AModelThatIsReadyAloneDraftsForAll) {
  Add();
  Add();
  room_.models[0].ready = false;
  EXPECT_EQ(Users(), (Slots{{}, {0, 1}}));
  room_.models[1].ready = false;
  EXPECT_EQ(Users(), (Slots{{}, {}}));
  EXPECT_EQ(toy_.slots[0].fallback, Fallback::kNoDrafter);
}

TEST_F(DraftModelsTest, ARequestThatNamesAModelGetsNoOther) {
  GenerationRequest request = ToySlots::Request(9);
  request.draft_model = "second";
  Add(request);
  EXPECT_EQ(Users(), (Slots{{}, {0}}));
  room_.models[1].ready = false;
  EXPECT_EQ(Users(), (Slots{{}, {}}));
  EXPECT_EQ(toy_.slots[0].fallback, Fallback::kNoDrafter);
}

TEST_F(DraftModelsTest, ACostlyModelMustGainMore) {
  const uint32_t id = Add();
  Show(id, 0, true);
  Show(id, 1, true);
  room_.models[0].pass_cost = 0.5;
  EXPECT_EQ(Users(), (Slots{{}, {0}}));
}

TEST_F(DraftModelsTest, OneSlotAloneIsNotWorthTheOthersWait) {
  for (int i = 0; i < 4; ++i) Add();
  for (uint32_t id = 0; id < 4; ++id) Show(id, 0, true);
  room_.num_slots = 4;
  // Even if its drafts are as good: all four would wait for passes that serve one.
  Show(2, 1, true);
  EXPECT_EQ(Users(), (Slots{{0, 1, 2, 3}, {}}));
}

TEST_F(DraftModelsTest, AModelThatLagsMustBeWorthItsCatchUp) {
  GenerationRequest request = ToySlots::Request(400, 20);
  const uint32_t id = AddLacking(&toy_, 1, request);  // the second drafter has no row
  Show(id, 1, true);
  EXPECT_EQ(Users(), (Slots{{}, {0}}));
  EXPECT_EQ(Choices()[1].candidates.at(0).drafter_lack, 400u);
  Show(id, 0, true);
  ModelChoice& models = *toy_.sequence(id).models;
  models.estimate(0) = models.estimate(1);
  room_.models[1].catch_up_cost = 0.05;
  EXPECT_EQ(Users(), (Slots{{0}, {}}));
}

TEST_F(DraftModelsTest, APlanIsMadeOfItsOwnDraftersBooks) {
  const uint32_t id = Add();
  toy_.Hold(kDrafterPeer + 1, id, 5);
  Show(id, 0, false);
  Show(id, 1, true);
  DraftChoice choice = Choices()[1];
  choice.candidates.at(0).length = 3;
  const std::vector<ProposePlan> plans = PlanPropose({}, room_, choice, &toy_.slots);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].begin, 5u);
  EXPECT_EQ(plans[0].num_tokens, 4u);
  EXPECT_EQ(plans[0].serial, toy_.sequence(id).serial);
}

TEST(FixedDraftLengthTest, TheRequestGoesBeforeTheOperator) {
  ToySlots toy(1);
  EngineOptions options;
  GenerationRequest request = ToySlots::Request(9);
  EXPECT_EQ(FixedDraftLength(options, *toy.Make(request)), std::nullopt);
  options.draft_length = 4;
  EXPECT_EQ(FixedDraftLength(options, *toy.Make(request)), 4u);
  request.draft_length = 0;
  EXPECT_EQ(FixedDraftLength(options, *toy.Make(request)), 0u);
  toy.AddDecoding(request);
  EXPECT_EQ(Gather(&toy, kMuchRoom, options).candidates.at(0).fixed, 0u);
}

// ---------------------------------------------------------------- plans

// Plans the given lengths for the candidates, in the order of their slots.
Rows Plan(ToySlots* toy, const std::vector<uint32_t>& lengths, const EngineOptions& options = {},
          const DraftRoom& room = kMuchRoom) {
  DraftChoice choice = GatherCandidates(options, room, 0, &toy->slots).front();
  EXPECT_EQ(choice.candidates.size(), lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) choice.candidates[i].length = lengths[i];
  Rows rows;
  for (const ProposePlan& plan : PlanPropose(options, room, choice, &toy->slots)) {
    rows.push_back({plan.slot, plan.num_tokens, plan.draft_length});
  }
  return rows;
}

EngineOptions WithStepRows(uint32_t step_rows) {
  EngineOptions options;
  options.step_rows = step_rows;
  return options;
}

TEST(PlanProposeTest, EachSlotGetsItsTokensAndItsLengthUpToItsLimit) {
  ToySlots toy(3);
  AddLacking(&toy, 1);
  AddLacking(&toy, 2);
  AddLacking(&toy, 2, ToySlots::Request(9, 4));
  EXPECT_EQ(Plan(&toy, {4, 6, 8}), (Rows{{0, 1, 4}, {1, 2, 6}, {2, 2, 3}}));
}

TEST(PlanProposeTest, ALengthOfZeroIsNotWorthwhile) {
  ToySlots toy(2);
  AddLacking(&toy, 1);
  AddLacking(&toy, 1);
  EXPECT_EQ(Plan(&toy, {0, 2}), (Rows{{1, 1, 2}}));
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kNotWorthwhile);
}

TEST(PlanProposeTest, ADraftFollowsATokenThatIsSent) {
  ToySlots toy(1);
  AddLacking(&toy, 0);
  EXPECT_EQ(Plan(&toy, {4}), Rows());
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kCatchingUp);
}

TEST(PlanProposeTest, EachSampledDraftTakesAnEntryOfTheRing) {
  ToySlots toy(4);
  AddLacking(&toy, 1, Sampled(ToySlots::Request(9)));
  AddLacking(&toy, 1, Sampled(ToySlots::Request(9)));
  AddLacking(&toy, 1);
  DraftRoom room = kMuchRoom;
  room.models[0].ring_entries = 1;
  EXPECT_EQ(Plan(&toy, {4, 4, 4}, {}, room), (Rows{{0, 1, 4}, {2, 1, 4}}));
  EXPECT_EQ(toy.slots[1].fallback, Fallback::kNoRing);
}

TEST(PlanProposeTest, ASlotThatOnlyCatchesUpTakesNoEntryOfTheRing) {
  ToySlots toy(2);
  AddLacking(&toy, 40, Sampled(ToySlots::Request(50)));
  AddLacking(&toy, 41, Sampled(ToySlots::Request(50)));
  DraftRoom room = kMuchRoom;
  room.models[0].ring_entries = 1;
  EXPECT_EQ(Plan(&toy, {4, 4}, WithStepRows(35), room), (Rows{{0, 35, 0}}));
  EXPECT_EQ(Plan(&toy, {4, 4}, WithStepRows(42), room), (Rows{{0, 39, 0}, {1, 3, 0}}));
  EXPECT_EQ(Plan(&toy, {4, 4}, WithStepRows(60), room), (Rows{{0, 40, 4}}));
  EXPECT_EQ(toy.slots[1].fallback, Fallback::kNoRing);
}

TEST(PlanProposeTest, ABatchHasNoMoreRowsThanItsLimit) {
  ToySlots toy(2);
  AddLacking(&toy, 1);
  AddLacking(&toy, 1);
  // A draft of eight tokens takes eight rows: the pending token's, and all but the last draft's.
  EXPECT_EQ(Plan(&toy, {8, 8}, WithStepRows(16)), (Rows{{0, 1, 8}, {1, 1, 8}}));
  EXPECT_EQ(Plan(&toy, {8, 8}, WithStepRows(15)), (Rows{{0, 1, 8}}));
  EXPECT_EQ(toy.slots[1].fallback, Fallback::kCatchingUp);
}

TEST(PlanProposeTest, WithoutRowsForADraftTheDrafterCatchesUpAndKeepsThePendingToken) {
  ToySlots toy(2);
  AddLacking(&toy, 1);
  AddLacking(&toy, 5);
  EXPECT_EQ(Plan(&toy, {8, 8}, WithStepRows(10)), (Rows{{0, 1, 8}, {1, 2, 0}}));
  EXPECT_EQ(toy.slots[1].fallback, Fallback::kCatchingUp);
  EXPECT_EQ(Plan(&toy, {8, 8}, WithStepRows(19)), (Rows{{0, 1, 8}, {1, 4, 0}}));
  EXPECT_EQ(Plan(&toy, {8, 8}, WithStepRows(20)), (Rows{{0, 1, 8}, {1, 5, 8}}));
}

TEST(PlanProposeTest, SiblingsTakeRowsOfTheBatchToo) {
  ToySlots toy(2);
  AddLacking(&toy, 1);
  const auto siblings = [&](uint32_t step_rows) {
    const EngineOptions options = WithStepRows(step_rows);
    DraftChoice choice = GatherCandidates(options, kMuchRoom, 0, &toy.slots).front();
    choice.candidates.at(0).length = 4;
    choice.candidates.at(0).num_siblings = {2, 1};
    const std::vector<ProposePlan> plans = PlanPropose(options, kMuchRoom, choice, &toy.slots);
    EXPECT_EQ(plans.at(0).draft_length, 4u);
    return plans.at(0).num_siblings;
  };
  EXPECT_EQ(siblings(7), (std::vector<uint32_t>{2, 1}));
  EXPECT_EQ(siblings(6), std::vector<uint32_t>()) << "a chain still fits";
}

TEST(PlanProposeTest, SiblingsTakeNoRowsFromTheChainsOfOthers) {
  ToySlots toy(2);
  AddLacking(&toy, 1);
  AddLacking(&toy, 1);
  const EngineOptions options = WithStepRows(11);
  DraftChoice choice = GatherCandidates(options, kMuchRoom, 0, &toy.slots).front();
  for (DraftCandidate& candidate : choice.candidates) {
    candidate.length = 4;
    candidate.num_siblings = {3};
  }
  const std::vector<ProposePlan> plans = PlanPropose(options, kMuchRoom, choice, &toy.slots);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].num_siblings, (std::vector<uint32_t>{3}));
  EXPECT_EQ(plans[1].draft_length, 4u);
  EXPECT_EQ(plans[1].num_siblings, std::vector<uint32_t>());
}

TEST(GatherCandidatesTest, AModelThatIsTriedDraftsTwoTokens) {
  const auto tried = [&](GenerationRequest request, uint32_t drafter_lack) {
    ToySlots toy(1, 2);
    DraftRoom room = kMuchRoom;
    room.models[1] = room.models[0];
    const uint32_t id = toy.AddDecoding(std::move(request));
    toy.Hold(kDrafterPeer + 1, id, toy.sequence(id).committed_len() - drafter_lack);
    toy.sequence(id).models->Try(1);
    return GatherCandidates({}, room, 0, &toy.slots).at(1).candidates.at(0);
  };
  GenerationRequest request = ToySlots::Request(300);
  EXPECT_EQ(tried(request, 64).fixed, 2u);
  EXPECT_EQ(tried(request, 64).max_nodes, 0u);
  EXPECT_EQ(tried(request, 65).fixed, std::nullopt) << "the controller says whether it pays";
  EXPECT_GT(tried(request, 65).max_nodes, 0u);
  request.draft_length = 5;
  EXPECT_EQ(tried(request, 1).fixed, 5u);
}

TEST(GatherCandidatesTest, ATreeIsAsLargeAsTheRequestAndTheContextOfTheTargetAllow) {
  ToySlots toy(3);
  const auto max_nodes = [&](const GenerationRequest& request, uint32_t context = 4096) {
    AddLacking(&toy, 1, request);
    DraftRoom room = kMuchRoom;
    room.target_context = context;
    const uint32_t most = Gather(&toy, room).candidates.at(0).max_nodes;
    toy.slots.Vacate(0);
    return most;
  };
  GenerationRequest request = ToySlots::Request(9);
  EXPECT_EQ(max_nodes(request), 16u);
  EXPECT_EQ(max_nodes(request, 20), 10u) << "one more row is that of the pending token";
  EngineOptions short_drafts;
  short_drafts.workers.max_draft_length = 6;
  AddLacking(&toy, 1, Sampled(request));
  EXPECT_EQ(Gather(&toy, kMuchRoom, short_drafts).candidates.at(0).max_nodes, 6u)
      << "each token of a sampled tree has a row in the ring";
  toy.slots.Vacate(0);
  request.draft_length = 3;
  EXPECT_EQ(max_nodes(request), 0u) << "a draft of a fixed length is a chain";
  request.max_tree_nodes = 5;
  EXPECT_EQ(max_nodes(request), 5u);
}

TEST(PlanProposeTest, SlotsThatLackTheLeastGoFirst) {
  ToySlots toy(4);
  for (const uint32_t lack : {3, 1, 2, 1}) AddLacking(&toy, lack);
  EXPECT_EQ(Plan(&toy, {1, 1, 1, 1}), (Rows{{1, 1, 1}, {3, 1, 1}, {2, 2, 1}, {0, 3, 1}}));
}

TEST(PlanProposeTest, BesideOthersALongPromptIsCaughtUpWithInPieces) {
  ToySlots toy(2);
  AddLacking(&toy, 300, 300);
  AddLacking(&toy, 1);
  ASSERT_EQ(kFirstChunkRows, 64u);
  EXPECT_EQ(Plan(&toy, {4, 4}), (Rows{{1, 1, 4}, {0, 64, 0}})) << "the cost is not known";
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kCatchingUp);
  toy.slots.peer(kDrafterPeer).row_seconds().Add(0.002);
  EngineOptions options;
  options.step_seconds = 0.25;
  EXPECT_EQ(Plan(&toy, {4, 4}, options), (Rows{{1, 1, 4}, {0, 125, 0}}));
  toy.slots.Vacate(1);
  EXPECT_EQ(Plan(&toy, {4}, options), (Rows{{0, 300, 4}})) << "nobody waits";
}

TEST(PlanProposeTest, LongPromptsShareThePieceOfARound) {
  ToySlots toy(3);
  AddLacking(&toy, 64, 64);  // not far behind
  AddLacking(&toy, 65, 65);
  AddLacking(&toy, 300, 300);
  EXPECT_EQ(Plan(&toy, {4, 4, 4}), (Rows{{0, 64, 4}, {1, 64, 0}}))
      << "nothing is left of the piece";
  EXPECT_EQ(toy.slots[2].fallback, Fallback::kCatchingUp);
}

TEST(PlanProposeTest, DraftModelsShareThePieceOfARound) {
  ToySlots toy(2);
  AddLacking(&toy, 300, 300);
  AddLacking(&toy, 1);
  constexpr double kRowSeconds = 0.002;
  toy.slots.peer(kDrafterPeer).row_seconds().Add(kRowSeconds);
  EngineOptions options;
  options.step_seconds = 0.25;
  const auto caught_up = [&](double taken_seconds, TakenOfRound* taken) {
    DraftChoice choice = GatherCandidates(options, kMuchRoom, 0, &toy.slots).front();
    for (DraftCandidate& candidate : choice.candidates) candidate.length = 4;
    choice.taken.catch_up_seconds = taken_seconds;
    const std::vector<ProposePlan> plans = PlanPropose(options, kMuchRoom, choice, &toy.slots);
    EXPECT_EQ(plans.size(), 2u);
    taken->Add(plans, kRowSeconds);
    return plans.at(1).num_tokens;
  };
  TakenOfRound taken;
  EXPECT_EQ(caught_up(0.125, &taken), 62u);
  EXPECT_EQ(taken.rows, 4u) << "the other slot's draft";
  EXPECT_DOUBLE_EQ(taken.catch_up_seconds, 62 * kRowSeconds);
  EXPECT_EQ(caught_up(0.3, &taken), 32u) << "each model gets on";
}

TEST(PlanProposeTest, ALonelyPromptIsCutToABatch) {
  ToySlots toy(1);
  AddLacking(&toy, 100, 100);
  EXPECT_EQ(Plan(&toy, {1}, WithStepRows(100)), (Rows{{0, 100, 1}}));
  EXPECT_EQ(Plan(&toy, {2}, WithStepRows(100)), (Rows{{0, 99, 0}}));
  EXPECT_EQ(Plan(&toy, {1}, WithStepRows(30)), (Rows{{0, 30, 0}}));
}

// ---------------------------------------------------------------- pages

TEST(PlanProposeTest, ADraftNeedsPagesOfTheDrafter) {
  ToySlots toy(2);
  toy.Attach(kDrafterPeer, 100);
  AddLacking(&toy, 1);  // eight rows are two pages
  AddLacking(&toy, 1);
  toy.slots.peer(kDrafterPeer).pages().Reported(1);
  EXPECT_EQ(Plan(&toy, {4, 4}), (Rows{{0, 1, 4}})) << "four rows more are one page";
  EXPECT_EQ(toy.slots[1].fallback, Fallback::kNoPages);
  EXPECT_EQ(Plan(&toy, {5, 4}), (Rows{{1, 1, 4}})) << "the other one may fit";
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kNoPages);
  DraftRoom room = kMuchRoom;
  room.models[0].returned_pages = 1;
  EXPECT_EQ(Plan(&toy, {4, 4}, {}, room), (Rows{{0, 1, 4}, {1, 1, 4}}))
      << "the rollbacks of the same command return one";
}

// The drafter has no free page. Slot 0 lacks one. Slots 1 and 2 have not drafted for some rounds.
struct SlotsWithIdleDrafts : ToySlots {
  explicit SlotsWithIdleDrafts(int num_rounds) : ToySlots(4) {
    LimitPages(kDrafterPeer, 0);
    for (int i = 0; i < 3; ++i) AddLacking(this, 1);
    for (const uint32_t id : {1, 2}) {
      for (int i = 0; i < num_rounds; ++i) sequence(id).models->estimate(0).Observe({});
    }
  }
};

TEST(PlanProposeTest, ALackOfPagesClosesOneIdleDraft) {
  SlotsWithIdleDrafts toy(64);
  EXPECT_EQ(Plan(&toy, {4, 0, 0}), Rows());
  EXPECT_EQ(toy.slots[0].fallback, Fallback::kNoPages);
  const WorkerPeer& drafter = toy.slots.peer(kDrafterPeer);
  EXPECT_TRUE(drafter.slot(0).open);
  EXPECT_FALSE(drafter.slot(1).open);
  EXPECT_EQ(drafter.slot(1).cached_len, 0u);
  EXPECT_EQ(drafter.slot(1).epoch, 2u) << "the drafter will see another life of the slot";
  EXPECT_TRUE(drafter.slot(2).open) << "one at a time";
  EXPECT_EQ(drafter.pages().num_free(), 2);
  EXPECT_TRUE(toy.slots.verifier().slot(1).open) << "the verifier goes on";
  EXPECT_EQ(Plan(&toy, {4, 0, 0}), (Rows{{0, 1, 4}})) << "in the next round the pages are there";
}

TEST(PlanProposeTest, ADraftIsIdleAfterManyRoundsAndOnlyIfItIsNotWanted) {
  SlotsWithIdleDrafts busy(63);
  EXPECT_EQ(Plan(&busy, {4, 0, 0}), Rows());
  for (const uint32_t id : {1, 2}) EXPECT_TRUE(busy.slots.peer(kDrafterPeer).slot(id).open);

  SlotsWithIdleDrafts wanted(64);
  EXPECT_EQ(Plan(&wanted, {4, 4, 0}), (Rows{{1, 1, 4}})) << "the close goes with this command";
  EXPECT_TRUE(wanted.slots.peer(kDrafterPeer).slot(1).open) << "it is to draft now";
  EXPECT_FALSE(wanted.slots.peer(kDrafterPeer).slot(2).open);
}

}  // namespace
}  // namespace tandem::propose_plan_test
