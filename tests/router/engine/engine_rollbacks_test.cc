// Rollbacks of slots: when the drafter is told to drop rows of draft tokens, and how.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "services/router/fleet/fleet.h"
#include "tests/router/engine_driver.h"

namespace tandem::engine_rollbacks_test {
namespace {

using testing::EngineDriver;
using testing::ToyModel;

std::vector<int32_t> Prompt(size_t length, int32_t first = 1) {
  std::vector<int32_t> prompt(length);
  for (size_t i = 0; i < length; ++i) prompt[i] = (first + static_cast<int32_t>(i) * 11) % 60;
  return prompt;
}

std::vector<int32_t> Plainly(const std::vector<int32_t>& prompt, size_t n) {
  const ToyModel model;
  std::vector<int32_t> tokens;
  uint64_t hash = HashTokens(prompt);
  for (size_t i = 0; i < n; ++i) {
    tokens.push_back(model.Target(hash));
    hash = ExtendTokenHash(hash, tokens.back());
  }
  return tokens;
}

// A block has four tokens, of which the drafter feeds three.
EngineOptions Options(uint32_t num_cohorts = 1) {
  EngineOptions options;
  options.max_lost_rounds = 1000;
  options.draft_length = 4;
  options.num_cohorts = num_cohorts;
  return options;
}

size_t RowsHeld(const EngineDriver& driver, uint32_t slot) {
  const auto held = driver.drafter.slots.find(slot);
  return held == driver.drafter.slots.end() ? 0 : held->second.tokens.size();
}

// Runs until all calls have ended, and shows each command to the drafter before it arrives there.
void RunAndSee(EngineDriver& driver, const std::function<void(const v1::DraftCommand&)>& see) {
  uint64_t last_id = 0;
  ASSERT_TRUE(driver.Run([&](int) {
    for (const SendToDrafter& send : driver.to_drafter) {
      if (send.command.id() <= last_id) continue;
      last_id = send.command.id();
      see(send.command);
    }
  }));
}

// A driver whose first block is about to be judged. The drafter's pages have four rows.
class FirstBlockTest : public ::testing::Test {
 protected:
  // The drafter holds `prompt_len` + 1 rows of committed tokens, and three rows more.
  void Draft(size_t prompt_len) {
    driver_.drafter.options.num_pages = 64;
    driver_.Start();
    prompt_ = Prompt(prompt_len);
    call_ = driver_.Send(driver_.Request(prompt_, 30));
    const auto judges_drafts = [&] {
      if (driver_.to_verifier.empty()) return false;
      const auto& items = driver_.to_verifier.front().command.verify().items();
      return !items.empty() && !items[0].draft_token_ids().empty();
    };
    while (!judges_drafts()) ASSERT_TRUE(driver_.Step());
    ASSERT_EQ(RowsHeld(driver_, 0), prompt_len + 4);
  }

  void ExpectToFinish() {
    driver_.Revive(Worker::kVerifier);
    ASSERT_TRUE(driver_.Run());
    EXPECT_EQ(driver_.calls[call_].ids, Plainly(prompt_, 30));
  }

  EngineDriver driver_{Options()};
  std::vector<int32_t> prompt_;
  CallId call_ = 0;
};

TEST(EngineRollbacksTest, ARollbackRidesBeforeTheItemsOfTheNextPropose) {
  EngineDriver driver(Options());
  driver.Start();
  const CallId call = driver.Send(driver.Request(Prompt(9), 60));
  int num_rollbacks = 0;
  RunAndSee(driver, [&](const v1::DraftCommand& command) {
    EXPECT_TRUE(command.update_slots().rollbacks().empty()) << "none travels alone";
    if (!command.has_propose()) return;
    const v1::SlotPoint& item = command.propose().items(0).at();
    const auto& rollbacks = command.propose().update_slots().rollbacks();
    ASSERT_EQ(rollbacks.size(), RowsHeld(driver, 0) > item.length() ? 1 : 0);
    if (rollbacks.empty()) return;
    ++num_rollbacks;
    EXPECT_EQ(rollbacks[0].slot(), item.slot());
    EXPECT_EQ(rollbacks[0].slot_epoch(), item.slot_epoch());
    EXPECT_EQ(rollbacks[0].command_number() + 1, item.command_number());
    EXPECT_EQ(rollbacks[0].length(), item.length());
    EXPECT_EQ(rollbacks[0].prefix_hash(), item.prefix_hash());
  });
  EXPECT_GT(num_rollbacks, 3);
  EXPECT_EQ(driver.calls[call].ids, Plainly(Prompt(9), 60));
}

TEST(EngineRollbacksTest, WithTwoCohortsNoRowIsDroppedBeforeItsVerdict) {
  EngineDriver driver(Options(2));
  driver.drafter.options.num_pages = 256;
  driver.Start();
  std::vector<CallId> calls;
  for (size_t i = 0; i < 6; ++i) calls.push_back(driver.Send(driver.Request(Prompt(7 + i), 40)));
  int num_rollbacks = 0;
  RunAndSee(driver, [&](const v1::DraftCommand& command) {
    const v1::UpdateSlots& updates =
        command.has_propose() ? command.propose().update_slots() : command.update_slots();
    for (const v1::SlotPoint& rollback : updates.rollbacks()) {
      ++num_rollbacks;
      EXPECT_GT(RowsHeld(driver, rollback.slot()), rollback.length());
      if (driver.to_verifier.empty()) continue;
      for (const v1::VerifyItem& item : driver.to_verifier.front().command.verify().items()) {
        EXPECT_FALSE(item.at().slot() == rollback.slot() && item.draft_token_ids_size() > 1);
      }
    }
  });
  EXPECT_GT(num_rollbacks, 10);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(driver.calls[calls[i]].ids, Plainly(Prompt(7 + i), 40)) << i;
  }
}

TEST_F(FirstBlockTest, ALostVerifierMakesARollbackTravelAloneThatReturnsAPage) {
  Draft(7);
  driver_.Kill(Worker::kVerifier);
  ASSERT_EQ(driver_.to_drafter.size(), 1u);
  const v1::UpdateSlots& updates = driver_.to_drafter.front().command.update_slots();
  ASSERT_EQ(updates.rollbacks_size(), 1);
  EXPECT_EQ(updates.rollbacks(0).length(), 8u) << "two pages of the three stay";
  ASSERT_TRUE(driver_.Step());
  EXPECT_EQ(RowsHeld(driver_, 0), 8u);
  EXPECT_EQ(driver_.fleet.State().gauges.free_kv_pages[Worker::kDrafter], 62);
  ExpectToFinish();
}

TEST_F(FirstBlockTest, ARollbackThatReturnsNoPageWaitsForTheNextPropose) {
  Draft(8);
  driver_.Kill(Worker::kVerifier);
  EXPECT_TRUE(driver_.to_drafter.empty());
  EXPECT_EQ(RowsHeld(driver_, 0), 12u);
  ExpectToFinish();
  ASSERT_FALSE(driver_.drafter.rollbacks.empty());
  EXPECT_EQ(driver_.drafter.rollbacks[0].length(), 9u);
}

TEST_F(FirstBlockTest, ASlotThatWasClosedIsNotRolledBack) {
  Draft(7);
  driver_.Cancel(call_);
  ASSERT_TRUE(driver_.Run());
  EXPECT_TRUE(driver_.drafter.rollbacks.empty());
  EXPECT_TRUE(driver_.drafter.slots.empty());
}

TEST_F(FirstBlockTest, AnswerWithOtherRowsThanTheRollbackAskedForBreaksTheProtocol) {
  Draft(7);
  driver_.Kill(Worker::kVerifier);
  driver_.change_draft_reply = [](v1::DraftReply& reply) {
    if (reply.has_update_slots()) {
      reply.mutable_update_slots()->mutable_rollbacks(0)->set_cached_len(7);
    }
  };
  ASSERT_TRUE(driver_.Step());
  EXPECT_EQ(driver_.sessions[Worker::kDrafter], 0u);
  EXPECT_NE(driver_.log.back().find("holds 7 rows after a rollback to 8"), std::string::npos);
  driver_.change_draft_reply = nullptr;
  ExpectToFinish();
}

TEST_F(FirstBlockTest, AnAnswerToAnythingButTheNewestCommandDoesNotCount) {
  Draft(7);
  driver_.Kill(Worker::kVerifier);
  driver_.change_draft_reply = [](v1::DraftReply& reply) {
    if (!reply.has_update_slots()) return;
    v1::SlotState& state = *reply.mutable_update_slots()->mutable_rollbacks(0);
    state.set_command_number(state.command_number() - 1);
    state.set_cached_len(7);
  };
  const SessionId session = driver_.sessions[Worker::kDrafter];
  ASSERT_TRUE(driver_.Step());
  EXPECT_EQ(driver_.sessions[Worker::kDrafter], session);
  driver_.change_draft_reply = nullptr;
  ExpectToFinish();
}

TEST_F(FirstBlockTest, ARollbackThatIsRefusedIsNotRepeated) {
  Draft(7);
  driver_.Kill(Worker::kVerifier);
  driver_.change_draft_reply = [](v1::DraftReply& reply) {
    if (!reply.has_update_slots()) return;
    v1::SlotState& state = *reply.mutable_update_slots()->mutable_rollbacks(0);
    state.set_code(v1::WORKER_CODE_ABORTED);
    state.set_cached_len(11);
    state.set_prefix_hash(4711);
  };
  ASSERT_TRUE(driver_.Step());
  EXPECT_TRUE(driver_.to_drafter.empty());
  driver_.change_draft_reply = nullptr;
  ExpectToFinish();
}

TEST_F(FirstBlockTest, TheLogNamesSlotAndEpochOfARollback) {
  Draft(7);
  driver_.Kill(Worker::kVerifier);
  const auto line =
      std::find_if(driver_.lines.begin(), driver_.lines.end(), [](const LogLine& candidate) {
        return candidate.text == "draft: rolls slot 0, epoch 1, back by 3 rows to 8";
      });
  ASSERT_NE(line, driver_.lines.end());
  EXPECT_EQ(line->level, LogLine::Level::kDebug);
  EXPECT_EQ(line->slot, 0u);
  EXPECT_EQ(line->epoch, 1u);
}

}  // namespace
}  // namespace tandem::engine_rollbacks_test
