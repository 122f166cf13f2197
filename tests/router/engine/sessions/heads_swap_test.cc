// Swaps of heads, by themselves and seen through the engine.
#include "services/router/engine/sessions/heads_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/router/fleet/fleet_drafters.h"
#include "tests/router/engine_driver.h"

namespace tandem::heads_swap_test {
namespace {

using ::testing::ElementsAre;
using testing::EngineDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Plainly;

v1::SetHeadsReply Loading(bool loading) {
  v1::SetHeadsReply reply;
  reply.set_loading(loading);
  return reply;
}

TEST(HeadsSwapTest, AsksUntilTheHeadsAreLoaded) {
  EngineCommands out;
  HeadsSwap swap(7, &out);
  swap.Want("a", 10);
  EXPECT_FALSE(swap.IsDue(1e9)) << "no verifier is attached";
  swap.OnAttached(11);
  EXPECT_TRUE(swap.under_way());
  ASSERT_TRUE(swap.IsDue(11));
  EXPECT_EQ(swap.Ask(5).heads(), "a");
  EXPECT_FALSE(swap.IsDue(1e9)) << "the answer is still to come";
  EXPECT_TRUE(swap.under_way());
  EXPECT_FALSE(swap.IsAnswer(4));
  ASSERT_TRUE(swap.IsAnswer(5));
  swap.OnAnswer(Loading(true), 12);
  EXPECT_FALSE(swap.IsDue(12));
  EXPECT_GT(swap.NextDeadline(), 12);
  ASSERT_TRUE(swap.IsDue(swap.NextDeadline()));
  EXPECT_EQ(swap.Ask(6).heads(), "a");
  swap.OnAnswer(Loading(false), 13);
  EXPECT_FALSE(swap.under_way());
  EXPECT_EQ(swap.problem(), "");
}

TEST(HeadsSwapTest, EachSessionIsAsked) {
  EngineCommands out;
  HeadsSwap swap(7, &out);
  swap.OnAttached(1);
  EXPECT_FALSE(swap.IsDue(1e9)) << "nobody wants other heads";
  swap.Want("a", 2);
  (void)swap.Ask(1);
  swap.OnLost();
  EXPECT_FALSE(swap.IsDue(1e9));
  swap.OnAttached(3);
  EXPECT_FALSE(swap.IsAnswer(1));
  ASSERT_TRUE(swap.IsDue(3));
  (void)swap.Ask(2);
  swap.OnAnswer(Loading(false), 4);
  swap.OnLost();
  swap.OnAttached(5);
  EXPECT_TRUE(swap.IsDue(5)) << "the verifier may have begun anew";
}

TEST(HeadsSwapTest, ARefusalEndsTheWishUntilItIsMadeAgain) {
  EngineCommands out;
  HeadsSwap swap(7, &out);
  swap.OnAttached(1);
  swap.Want("a", 2);
  (void)swap.Ask(1);
  swap.OnRefused("no such folder");
  EXPECT_EQ(swap.problem(), "no such folder");
  EXPECT_EQ(std::get<LogLine>(out.back()).text,
            "verifier: cannot take the heads \"a\": no such folder");
  EXPECT_EQ(std::get<LogLine>(out.back()).summary, "verifier: cannot take the heads \"a\"")
      << "others than the log's readers see no text of a worker";
  EXPECT_FALSE(swap.under_way());
  swap.Want("a", 3);
  EXPECT_EQ(swap.problem(), "");
  EXPECT_TRUE(swap.IsDue(3));
}

TEST(HeadsSwapTest, AnAnswerToAnOlderWishSaysNothing) {
  EngineCommands out;
  HeadsSwap swap(7, &out);
  swap.OnAttached(1);
  swap.Want("a", 2);
  (void)swap.Ask(1);
  swap.Want("b", 3);
  EXPECT_FALSE(swap.IsAnswer(1));
  EXPECT_EQ(swap.Ask(2).heads(), "b");
  EXPECT_TRUE(swap.IsAnswer(2));
}

TEST(HeadsSwapTest, AWishHasANumberAndKeepsIt) {
  EngineCommands out;
  HeadsSwap swap(7, &out);
  swap.OnAttached(1);
  swap.Want("a", 2);
  const uint64_t first = swap.Ask(1).wish();
  EXPECT_NE(first, 0u);
  swap.OnAnswer(Loading(true), 2);
  EXPECT_EQ(swap.Ask(2).wish(), first);
  swap.OnLost();
  swap.OnAttached(3);
  EXPECT_EQ(swap.Ask(3).wish(), first) << "a verifier that knows it does not begin anew";
  swap.Want("a", 4);
  EXPECT_NE(swap.Ask(4).wish(), first);
  HeadsSwap wraps(~uint64_t{0}, &out);
  wraps.OnAttached(1);
  wraps.Want("a", 2);
  EXPECT_NE(wraps.Ask(1).wish(), 0u);
}

TEST(HeadsSwapTest, AWishThatWasSupersededIsOver) {
  EngineCommands out;
  HeadsSwap swap(7, &out);
  swap.OnAttached(1);
  swap.Want("a", 2);
  (void)swap.Ask(1);
  v1::SetHeadsReply reply;
  reply.set_superseded(true);
  swap.OnAnswer(reply, 3);
  EXPECT_FALSE(swap.under_way());
  EXPECT_THAT(swap.problem(), HasSubstr("another router"));
}

TEST(HeadsSwapTest, HeadsOfOneNameMayBeOthers) {
  v1::SelfDrafter a;
  a.set_heads("medusa");
  a.set_name("medusa");
  v1::SelfDrafter b = a;
  EXPECT_TRUE(AreSameHeads(a, b));
  b.set_version(1);
  EXPECT_FALSE(AreSameHeads(a, b));
}

// ---------------------------------------------------------------- with an engine

const std::vector<int32_t> kPrompt = {5, 9, 2, 40, 7};

// A pod without a draft model, whose verifier can load the heads "medusa", "eagle" and "slow".
class EngineHeadsTest : public ::testing::Test {
 protected:
  explicit EngineHeadsTest(EngineOptions options = FixedLength())
      : driver_(std::move(options), {.percent_agreement = 100}) {
    driver_.drafter_alive = false;
    driver_.verifier.options.self_drafter = "blockwise";
    driver_.verifier.loadable_heads = {{"medusa", "medusa"}, {"eagle", "eagle"}, {"none", ""}};
    driver_.Start();
  }
  static EngineOptions FixedLength() {
    EngineOptions options;
    options.draft_length = 3;
    return options;
  }
  GenerationRequest WithAllHeads(int max_tokens) const {
    GenerationRequest request = driver_.Request(kPrompt, max_tokens);
    request.drafters = DrafterSet();
    for (const Drafter drafter : kSelfDrafters) request.drafters.Add(drafter);
    return request;
  }
  void Swap(const std::string& heads) {
    ASSERT_TRUE(SwapHeads(heads, driver_.now, &driver_.fleet).ok());
    driver_.Execute();
  }
  // Lets the verifier's loads end.
  void Settle() {
    for (int i = 0; i < 20; ++i) {
      while (driver_.Step()) {
      }
      driver_.now += 0.1;
      driver_.fleet.Tick(driver_.now);
      driver_.Execute();
    }
  }
  HeadsState Heads() const { return driver_.fleet.State().heads; }

  EngineDriver driver_;
};

TEST_F(EngineHeadsTest, RunningRequestsGoOnWithTheNewHeads) {
  driver_.verifier.loads_before_heads = 3;
  const CallId call = driver_.Send(WithAllHeads(400));
  for (int i = 0; i < 12; ++i) driver_.Step();
  EXPECT_GT(driver_.verifier.num_proposals, 0);
  Swap("eagle");
  EXPECT_EQ(Heads().num_loading, 1u);
  for (int i = 0; i < 40; ++i) {
    driver_.Step();
    driver_.now += 0.02;
    driver_.fleet.Tick(driver_.now);
    driver_.Execute();
  }
  EXPECT_EQ(Heads().num_attached, 1u);
  EXPECT_EQ(Heads().name, "eagle");
  EXPECT_THAT(Heads().kinds, ElementsAre("eagle"));
  driver_.verifier.num_proposals = 0;
  ASSERT_TRUE(driver_.Run());
  EXPECT_GT(driver_.verifier.num_proposals, 10);
  EXPECT_EQ(driver_.calls[call].ids, Plainly(kPrompt, 400));
  EXPECT_EQ(driver_.calls[call].completion->speculation().drafter(), "eagle")
      << "it drafted the larger part";
}

TEST_F(EngineHeadsTest, RequestsMayLoseAndGetHeads) {
  const CallId call = driver_.Send(WithAllHeads(200));
  for (int i = 0; i < 8; ++i) driver_.Step();
  Swap("none");
  for (int i = 0; i < 8; ++i) driver_.Step();
  driver_.verifier.num_proposals = 0;
  for (int i = 0; i < 20; ++i) driver_.Step();
  EXPECT_EQ(driver_.verifier.num_proposals, 0);
  EXPECT_THAT(Heads().kinds, IsEmpty());
  Swap("medusa");
  ASSERT_TRUE(driver_.Run());
  EXPECT_GT(driver_.verifier.num_proposals, 10);
  EXPECT_EQ(driver_.calls[call].ids, Plainly(kPrompt, 200));
}

TEST_F(EngineHeadsTest, ARequestThatMayNotUseTheNewHeadsGoesOnWithoutThem) {
  GenerationRequest request = driver_.Request(kPrompt, 100);
  request.drafters = DrafterSet(Drafter::kBlockwise);
  const CallId call = driver_.Send(request);
  for (int i = 0; i < 8; ++i) driver_.Step();
  Swap("eagle");
  for (int i = 0; i < 8; ++i) driver_.Step();
  driver_.verifier.num_proposals = 0;
  ASSERT_TRUE(driver_.Run());
  EXPECT_EQ(driver_.verifier.num_proposals, 0);
  EXPECT_EQ(driver_.calls[call].ids, Plainly(kPrompt, 100));
}

TEST_F(EngineHeadsTest, HeadsThatCannotBeLoadedLeaveTheOldOnes) {
  Swap("missing");
  Settle();
  EXPECT_EQ(Heads().num_attached, 0u);
  EXPECT_EQ(Heads().num_loading, 0u);
  EXPECT_THAT(Heads().problem_in_full, HasSubstr("there are no heads missing"));
  EXPECT_THAT(Heads().kinds, ElementsAre("blockwise"));
  EXPECT_EQ(driver_.Generate(WithAllHeads(40)).completion->speculation().drafter(), "blockwise");
  ASSERT_TRUE(RollBackHeads("", driver_.now, &driver_.fleet).ok());
  driver_.Execute();
  Settle();
  EXPECT_EQ(Heads().num_attached, 1u);
  EXPECT_EQ(Heads().problem_in_full, "");
}

TEST(EngineHeadsPreemptionTest, ARequestThatWaitedMeanwhileGetsTheNewHeads) {
  EngineOptions options;
  options.draft_length = 3;
  EngineDriver driver(options, {.percent_agreement = 100});
  driver.drafter_alive = false;
  driver.verifier.options.num_pages = 40;  // pages of 4 tokens: both requests do not fit
  driver.verifier.options.self_drafter = "blockwise";
  driver.verifier.loadable_heads = {{"eagle", "eagle"}};
  driver.Start();
  GenerationRequest request = driver.Request(kPrompt, 120);
  request.drafters = DrafterSet(Drafter::kBlockwise);
  request.drafters.Add(Drafter::kEagle);
  const CallId calls[] = {driver.Send(request), driver.Send(request)};
  int num_steps = 0;
  while (driver.engine().counts().preemptions == 0 && driver.Step()) ++num_steps;
  ASSERT_EQ(driver.engine().counts().preemptions, 1u) << "after " << num_steps << " steps";
  ASSERT_EQ(driver.engine().num_running(), 1u);
  ASSERT_TRUE(SwapHeads("eagle", driver.now, &driver.fleet).ok());
  driver.Execute();
  ASSERT_TRUE(driver.Run());
  for (const CallId call : calls) {
    EXPECT_EQ(driver.calls[call].ids, Plainly(kPrompt, 120));
    int num_by_eagle = 0;
    for (const v1::DrafterStats& used : driver.calls[call].completion->speculation().drafters()) {
      if (used.name() == "eagle") num_by_eagle += used.num_draft_tokens();
    }
    EXPECT_GT(num_by_eagle, 0) << "call " << call;
  }
}

// A server that chooses draft lengths itself. It asks for as long as proposals gain something.
class ChoosingEngineHeadsTest : public EngineHeadsTest {
 protected:
  ChoosingEngineHeadsTest() : EngineHeadsTest(EngineOptions()) {}
};

TEST_F(ChoosingEngineHeadsTest, AVerifierThatCannotProposeIsAskedRarely) {
  driver_.verifier.cannot_propose = true;
  EXPECT_EQ(driver_.Generate(WithAllHeads(300)).ids, Plainly(kPrompt, 300));
  EXPECT_GT(driver_.verifier.num_proposals, 0);
  EXPECT_LT(driver_.verifier.num_proposals, 30);
  driver_.verifier.cannot_propose = false;
  driver_.verifier.num_proposals = 0;
  const v1::SpeculationStats stats = driver_.Generate(WithAllHeads(60)).completion->speculation();
  EXPECT_GT(stats.num_accepted_tokens(), 30) << "nobody has learned that heads are of no use";
}

TEST_F(EngineHeadsTest, AFirstSwapIsTakenBackToWhatAVerifierHad) {
  // The router that swapped the heads before is gone, and this one has no wish.
  driver_.verifier.heads = "medusa";
  driver_.verifier.heads_version = 1;
  driver_.verifier.options.self_drafter = "medusa";
  driver_.verifier.tells_heads = true;
  (void)driver_.Generate(WithAllHeads(10));
  EXPECT_EQ(PresentHeads(driver_.fleet), "medusa");
  Swap("missing");
  Settle();
  ASSERT_TRUE(RollBackHeads("missing", driver_.now, &driver_.fleet).ok());
  driver_.Execute();
  Settle();
  EXPECT_EQ(Heads().wanted, "medusa");
  EXPECT_EQ(Heads().num_attached, 1u);
  EXPECT_EQ(driver_.verifier.heads, "medusa");
}

TEST_F(EngineHeadsTest, AVerifierThatComesBackGetsTheHeadsAgain) {
  Swap("eagle");
  Settle();
  driver_.Kill(Worker::kVerifier);
  driver_.verifier.options.self_drafter = "blockwise";  // a new process begins with its own
  driver_.verifier.heads = "";
  driver_.verifier.heads_version = 0;
  driver_.Revive(Worker::kVerifier);
  Settle();
  EXPECT_THAT(Heads().kinds, ElementsAre("eagle"));
  EXPECT_EQ(Heads().num_attached, 1u);
}

TEST_F(EngineHeadsTest, TheRouterBelievesAVerifierWhoseHeadsSomebodyElseChanged) {
  driver_.verifier.options.self_drafter = "medusa";
  driver_.verifier.tells_heads = true;
  EXPECT_EQ(driver_.Generate(WithAllHeads(40)).ids, Plainly(kPrompt, 40));
  EXPECT_THAT(Heads().kinds, ElementsAre("medusa"));
  EXPECT_EQ(driver_.Generate(WithAllHeads(40)).completion->speculation().drafter(), "medusa");
}

TEST_F(EngineHeadsTest, AVerifierThatStatesTooLongANameIsDropped) {
  driver_.verifier.options.self_drafter = std::string(5000, 'x');
  driver_.verifier.tells_heads = true;
  const CallId call = driver_.Send(WithAllHeads(20));
  for (int i = 0; i < 8; ++i) driver_.Step();
  driver_.verifier.options.self_drafter = "medusa";
  ASSERT_TRUE(driver_.Run());
  EXPECT_EQ(driver_.calls[call].ids, Plainly(kPrompt, 20));
  EXPECT_EQ(
      driver_.engine().counts().session_changes[Worker::kVerifier][SessionChange::kProtocolError],
      1u);
}

}  // namespace
}  // namespace tandem::heads_swap_test
