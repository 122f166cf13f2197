#include "services/worker/slots/slot_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "services/worker/slots/slot_ledger.h"
#include "tests/worker/model_doubles.h"
#include "tests/worker/slots/to_slot_open.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::ToSlotOpen;
using Action = SlotTable::Action;

constexpr size_t kTinyVocabularySize = 16;
constexpr size_t kCapacity = 256;
constexpr size_t kNumPages = 6;

v1::SlotPoint At(uint32_t slot, uint32_t epoch, uint64_t number, uint32_t length, uint64_t hash) {
  v1::SlotPoint at;
  at.set_slot(slot);
  at.set_slot_epoch(epoch);
  at.set_command_number(number);
  at.set_length(length);
  at.set_prefix_hash(hash);
  return at;
}

// Returns a command at the end of `tokens`.
v1::SlotPoint After(const std::vector<int32_t>& tokens, uint64_t number, uint32_t epoch = 1,
                    uint32_t slot = 0) {
  return At(slot, epoch, number, static_cast<uint32_t>(tokens.size()), HashTokens(tokens));
}

class SlotTableTest : public ::testing::Test {
 protected:
  // Executes a command that feeds `tokens`.
  void Feed(const v1::SlotPoint& at, const std::vector<int32_t>& tokens,
            const v1::SlotOpen* open = nullptr) {
    const SlotTable::Decision decision = table_.Check(at, open);
    ASSERT_EQ(decision.action, Action::kExecute) << decision.refusal.message();
    const auto num_cached = table_.Begin(at, {.token_ids = tokens}, *decision.slot);
    ASSERT_TRUE(num_cached.ok()) << num_cached.status();
    Compute(*decision.slot, std::span(tokens).subspan(*num_cached));
  }
  // Does the work of the model and its caller for rows that are not in the cache yet.
  void Compute(Slot& slot, std::span<const int32_t> token_ids) {
    const ForwardItem item{
        .cache = slot.cache(), .token_ids = token_ids, .parents = {}, .num_logits = 0};
    ASSERT_TRUE(model_.Forward(std::span(&item, 1)).ok());
    slot.Append(token_ids);
    ASSERT_EQ(slot.cache()->length(), slot.length());
  }

  v1::SlotState Refusal(const v1::SlotPoint& at, const v1::SlotOpen* open = nullptr) {
    const SlotTable::Decision decision = table_.Check(at, open);
    EXPECT_EQ(decision.action, Action::kRefuse);
    return decision.refusal;
  }

  testing::RowCountingModel model_;
  std::unique_ptr<CachePool> pool_ = std::make_unique<CachePool>(
      *KvPagePool::Create(model_.description(),
                          kNumPages* HostKvMemory::PageBytes(model_.description())),
      2, kCapacity);
  SlotTable table_{pool_.get(), kTinyVocabularySize, 4};
  const v1::SlotOpen open_ = ToSlotOpen(SamplingParams(), /*prompt_length=*/3);
};

TEST_F(SlotTableTest, CommandsFollowEachOther) {
  Feed(After({}, 1), {1, 2, 3}, &open_);
  Feed(After({1, 2, 3}, 2), {4});
  const v1::SlotPoint next = After({1, 2, 3, 4}, 3);
  const auto decision = table_.Check(next, nullptr);
  ASSERT_EQ(decision.action, Action::kExecute);
  const v1::SlotState state = table_.State(next, *decision.slot);
  EXPECT_EQ(state.cached_len(), 4);
  EXPECT_EQ(state.prefix_hash(), HashTokens(std::vector<int32_t>{1, 2, 3, 4}));
}

TEST_F(SlotTableTest, AShorterLengthRollsBackFirst) {
  Feed(After({}, 1), {1, 2, 3, 4, 5}, &open_);
  Feed(After({1, 2, 3}, 2), {9});
  const auto decision = table_.Check(After({1, 2, 3, 9}, 3), nullptr);
  ASSERT_EQ(decision.action, Action::kExecute);
  EXPECT_EQ(decision.slot->length(), 4);
}

TEST_F(SlotTableTest, CheckChangesNothing) {
  Feed(After({}, 1), {1, 2, 3, 4, 5}, &open_);
  EXPECT_EQ(table_.Check(After({1}, 2), nullptr).action, Action::kExecute);
  EXPECT_EQ(table_.Check(After({1, 2, 3, 4, 5}, 2), nullptr).action, Action::kExecute);
}

TEST_F(SlotTableTest, ALongerLengthIsAbortedWithTheActualLength) {
  Feed(After({}, 1), {1, 2}, &open_);
  const v1::SlotState state = Refusal(After({1, 2, 3}, 2));
  EXPECT_EQ(state.code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(state.cached_len(), 2);
  EXPECT_EQ(state.prefix_hash(), HashTokens(std::vector<int32_t>{1, 2}));
  EXPECT_EQ(state.slot_epoch(), 1);
  EXPECT_EQ(state.command_number(), 2);
  // The number is not used up, because nothing happened.
  EXPECT_EQ(table_.Check(After({1, 2}, 2), nullptr).action, Action::kExecute);
}

TEST_F(SlotTableTest, OtherTokensAreAborted) {
  Feed(After({}, 1), {1, 2, 3}, &open_);
  EXPECT_EQ(Refusal(After({1, 7, 3}, 2)).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(Refusal(After({7}, 2)).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(Refusal(At(0, 1, 2, 0, 12345)).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(Refusal(After({1, 7}, 2)).cached_len(), 3);
}

TEST_F(SlotTableTest, CommandsThatAreNotNewerAreReplayed) {
  Feed(After({}, 5), {1, 2, 3}, &open_);
  EXPECT_EQ(table_.Check(After({}, 5), &open_).action, Action::kReplay);
  EXPECT_EQ(table_.Check(After({1}, 4), nullptr).action, Action::kReplay);
  EXPECT_EQ(table_.Check(After({9, 9, 9, 9}, 1), nullptr).action, Action::kReplay);
  EXPECT_EQ(table_.Check(After({1, 2, 3}, 6), nullptr).action, Action::kExecute) << "the rows stay";
}

TEST_F(SlotTableTest, OldEpochsAreAborted) {
  Feed(After({}, 1, 5), {1, 2}, &open_);
  const v1::SlotState state = Refusal(After({1, 2}, 2, 4), &open_);
  EXPECT_EQ(state.code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(state.slot_epoch(), 5);
  EXPECT_EQ(state.cached_len(), 2);
}

TEST_F(SlotTableTest, ANewEpochNeedsOpenAndFreesTheOldRows) {
  Feed(After({}, 1), {1, 2}, &open_);
  EXPECT_EQ(Refusal(After({}, 2, 2)).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(Refusal(After({}, 1, 2), &open_).code(), v1::WORKER_CODE_INVALID_ARGUMENT)
      << "numbers continue across epochs";
  Feed(After({}, 2, 2), {7}, &open_);
  EXPECT_EQ(pool_->num_free(), 1) << "the slot's cache is used again";
  EXPECT_EQ(Refusal(After({1, 2}, 3, 1)).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(table_.Check(After({7}, 3, 2), nullptr).action, Action::kExecute);
}

TEST_F(SlotTableTest, AnEpochStaysOpenIfItsFirstCommandIsAborted) {
  EXPECT_EQ(Refusal(After({1, 2}, 1), &open_).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(table_.Check(After({}, 2), nullptr).action, Action::kExecute);
}

TEST_F(SlotTableTest, UnknownSlotIdsAndNumberZeroAreInvalid) {
  EXPECT_EQ(Refusal(After({}, 1, 1, 4), &open_).code(), v1::WORKER_CODE_INVALID_ARGUMENT);
  EXPECT_EQ(Refusal(After({}, 1, 1, ~0u), &open_).code(), v1::WORKER_CODE_INVALID_ARGUMENT);
  EXPECT_EQ(Refusal(After({}, 0), &open_).code(), v1::WORKER_CODE_INVALID_ARGUMENT);
}

TEST_F(SlotTableTest, CachesAreLimitedAndComeBack) {
  Feed(After({}, 1, 1, 0), {1}, &open_);
  Feed(After({}, 1, 1, 1), {1}, &open_);
  v1::SlotState refused = Refusal(After({}, 1, 1, 2), &open_);
  EXPECT_EQ(refused.code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.slot_epoch(), 0) << "the slot does not have an epoch that was not begun";
  refused = Refusal(After({}, 2, 1, 2));
  EXPECT_EQ(refused.code(), v1::WORKER_CODE_ABORTED) << "`open` is missing";
  EXPECT_EQ(refused.slot_epoch(), 0);
  v1::SlotClose close;
  close.set_slot(0);
  close.set_slot_epoch(1);
  table_.Close(close);
  EXPECT_EQ(pool_->num_free(), 1);
  Feed(After({}, 1, 1, 2), {1, 2}, &open_);
}

TEST_F(SlotTableTest, ATableGivesItsCachesBack) {
  {
    SlotTable other(pool_.get(), kTinyVocabularySize, 1);
    EXPECT_EQ(other.Check(After({}, 1), &open_).action, Action::kExecute);
    EXPECT_EQ(pool_->num_free(), 1);
  }
  EXPECT_EQ(pool_->num_free(), 2);
}

TEST_F(SlotTableTest, AClosedEpochStaysClosed) {
  Feed(After({}, 3, 2), {1}, &open_);
  v1::SlotClose close;
  close.set_slot(0);
  close.set_slot_epoch(1);
  table_.Close(close);
  EXPECT_EQ(pool_->num_free(), 1) << "a late close of an older epoch does nothing";
  close.set_slot_epoch(2);
  table_.Close(close);
  table_.Close(close);
  EXPECT_EQ(pool_->num_free(), 2);
  EXPECT_EQ(Refusal(After({1}, 4, 2), &open_).code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(Refusal(After({}, 3, 3), &open_).code(), v1::WORKER_CODE_INVALID_ARGUMENT)
      << "numbers continue after closes";
  Feed(After({}, 4, 3), {5}, &open_);
  close.set_slot(99);
  table_.Close(close);
}

TEST_F(SlotTableTest, CountsFollowTheRows) {
  Feed(After({}, 1), {1, 2, 3, 3, 1}, &open_);  // the prompt has three of these tokens
  Slot& slot = *table_.Check(After({1, 2, 3, 3, 1}, 2), nullptr).slot;
  EXPECT_EQ(slot.counts()->counts().at(3).prompt, 1);
  EXPECT_EQ(slot.counts()->counts().at(3).output, 1);
  EXPECT_EQ(slot.counts()->counts().at(1).output, 1);
  EXPECT_EQ(slot.num_output_tokens(), 2);
  slot.TruncateTo(2);
  EXPECT_EQ(slot.counts()->counts().count(3), 0);
  EXPECT_EQ(slot.counts()->counts().at(1).prompt, 1);
  EXPECT_EQ(slot.counts()->counts().at(1).output, 0);
  EXPECT_EQ(slot.num_output_tokens(), 0);
}

TEST_F(SlotTableTest, BadParametersAreInvalidAndOpenNothing) {
  v1::SlotOpen bad = open_;
  bad.mutable_sampling()->set_temperature(-1);
  const v1::SlotState state = Refusal(After({}, 1), &bad);
  EXPECT_EQ(state.code(), v1::WORKER_CODE_INVALID_ARGUMENT);
  EXPECT_THAT(state.message(), HasSubstr("temperature"));
  EXPECT_EQ(pool_->num_free(), 2);
}

// After any order, repetition and loss of the commands of a history, the slot has a prefix of some
// state of that history. A new command always finds out which one.
TEST_F(SlotTableTest, LateAndRepeatedCommandsNeverDestroyNewerRows) {
  SlotLedger<v1::VerifyResult> ledger(pool_.get(), kTinyVocabularySize, 1);
  std::mt19937 random(7);
  std::vector<int32_t> committed;
  std::vector<v1::UpdateSlots> sent;
  uint64_t number = 0;
  for (int step = 0; step < 2000; ++step) {
    // A new command goes back to some length and then adds one token.
    const size_t length =
        committed.empty() ? 0 : committed.size() - random() % std::min<size_t>(3, committed.size());
    committed.resize(length >= kCapacity - 1 ? 0 : length);
    const v1::SlotPoint at = After(committed, ++number);
    ledger.BeginBatch();
    v1::VerifyResult result;
    Slot* slot = ledger.Admit(at, &open_, result);
    ASSERT_NE(slot, nullptr) << result.state().message();
    const std::vector<int32_t> token = {static_cast<int32_t>(random() % kTinyVocabularySize)};
    ASSERT_TRUE(ledger.Execute(at, {.token_ids = token}, *slot).ok());
    Compute(*slot, token);
    committed.push_back(token[0]);
    ledger.Settle(at, *slot, result);
    v1::UpdateSlots rollback;
    *rollback.add_rollbacks() = at;
    sent.push_back(rollback);
    // Sends late and repeated rollbacks, each with the number of its command.
    for (int i = 0; i < 3; ++i) {
      v1::UpdateSlotsReply reply;
      ledger.UpdateSlots(sent[random() % sent.size()], reply);
      ASSERT_EQ(reply.rollbacks(0).code(), v1::WORKER_CODE_OK);
      ASSERT_EQ(reply.rollbacks(0).command_number(), number) << "the newest command's result";
      ASSERT_EQ(reply.rollbacks(0).cached_len(), committed.size());
      ASSERT_EQ(reply.rollbacks(0).prefix_hash(), HashTokens(committed));
    }
  }
}

TEST_F(SlotTableTest, ASlotThatIsTwiceInABatchIsInvalidTheSecondTime) {
  SlotLedger<v1::VerifyResult> ledger(pool_.get(), kTinyVocabularySize, 1);
  ledger.BeginBatch();
  v1::VerifyResult first;
  v1::VerifyResult second;
  Slot* slot = ledger.Admit(After({}, 1), &open_, first);
  ASSERT_NE(slot, nullptr);
  ASSERT_TRUE(ledger.Execute(After({}, 1), {}, *slot).ok());
  EXPECT_EQ(ledger.Admit(After({}, 2), nullptr, second), nullptr);
  EXPECT_EQ(second.state().code(), v1::WORKER_CODE_INVALID_ARGUMENT);
  ledger.BeginBatch();
  EXPECT_NE(ledger.Admit(After({}, 2), nullptr, second), nullptr);
}

}  // namespace
}  // namespace tandem
