// Tests a verifier with a drafter of its own, over a real gRPC Unix socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/verifier/verifier_server.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/tiny_router.h"

namespace tandem::verifier_heads_test {
namespace {

using ::testing::HasSubstr;
using testing::TinySequence;
using testing::VerifierClient;

const std::vector<int32_t> kPrompt = {5, 11, 3, 40, 22};

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

class VerifierHeadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(dir_ / "target", {});
    testing::WriteRandomHeads(dir_ / "heads", {.has_bias = true, .output_scale = 2.0});
  }
  // Returns what the verifier says at attach.
  v1::AttachReply Start(bool with_heads) {
    auto model = WorkerModel::Load({.folder = dir_ / "target",
                                    .heads = with_heads ? dir_ / "heads" : "",
                                    .heads_folder = heads_folder_,
                                    .max_slots = 3,
                                    .max_context = 256});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    const Address address = *Address::Parse("unix:" + (dir_ / "verifier.sock").string());
    server_ = std::make_unique<testing::RunningServer>(
        *VerifierServer::Start({address, nullptr, ""}, *model_, dir_ / "ring"));
    verifier_ = std::make_unique<VerifierClient>(server_->address());
    return testing::Attach<VerifierClient, v1::VerifierCommand>(*verifier_, 3);
  }
  v1::VerifyResult Verify(const v1::VerifyItem& item) {
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() = item;
    const v1::VerifierReply reply = verifier_->Call(command);
    EXPECT_EQ(reply.verify().results_size(), 1) << reply.error().message();
    propose_seconds_ = reply.verify().propose_seconds();
    return reply.verify().results(0);
  }
  static v1::VerifyItem Asking(v1::VerifyItem item, uint32_t depth, uint32_t nodes) {
    item.mutable_propose()->set_max_depth(depth);
    item.mutable_propose()->set_max_nodes(nodes);
    return item;
  }

  testing::TempDir dir_;
  std::filesystem::path heads_folder_;
  std::unique_ptr<WorkerModel> model_;
  std::unique_ptr<testing::RunningServer> server_;
  std::unique_ptr<VerifierClient> verifier_;
  double propose_seconds_ = 0;
};

TEST_F(VerifierHeadsTest, SaysWhichDrafterItHas) {
  EXPECT_EQ(Start(true).self_drafter().name(), "medusa");
  verifier_.reset();
  server_.reset();
  const v1::AttachReply without = Start(false);
  EXPECT_EQ(without.self_drafter().name(), "");
  EXPECT_EQ(without.self_drafter().max_depth(), 0u);
}

TEST_F(VerifierHeadsTest, ProposesWithTheVerdictAndRepeatsItself) {
  EXPECT_EQ(Start(true).self_drafter().max_depth(), 3u);
  TinySequence sequence(kPrompt, Greedy());
  const v1::VerifyItem item = Asking(sequence.NextVerify({}), 2, 5);
  const v1::VerifyResult result = Verify(item);
  EXPECT_GT(propose_seconds_, 0);
  ASSERT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
  EXPECT_EQ(result.proposal().token_ids_size(), 5);
  EXPECT_EQ(result.proposal().chances_size(), 5);
  const v1::VerifyResult again = Verify(item);
  EXPECT_EQ(again.SerializeAsString(), result.SerializeAsString());
  EXPECT_EQ(propose_seconds_, 0) << "nothing is computed anew";

  sequence.Commit({}, result);
  const v1::VerifyResult next = Verify(sequence.NextVerify({}));
  EXPECT_FALSE(next.has_proposal()) << "nobody asked";
  EXPECT_EQ(propose_seconds_, 0);
}

TEST_F(VerifierHeadsTest, AChainHasNoParents) {
  Start(true);
  TinySequence sequence(kPrompt, Greedy());
  const v1::VerifyResult result = Verify(Asking(sequence.NextVerify({}), 3, 0));
  EXPECT_EQ(result.proposal().token_ids_size(), 3);
  EXPECT_EQ(result.proposal().parents_size(), 0);
}

TEST_F(VerifierHeadsTest, WhatIsProposedFollowsTheAcceptedTokens) {
  // The proposal after an accepted draft is that after the same tokens, decoded one by one.
  Start(true);
  TinySequence plain(kPrompt, Greedy());
  std::vector<std::string> proposals;
  for (int i = 0; i < 6; ++i) {
    const v1::VerifyResult result = Verify(Asking(plain.NextVerify({}), 3, 8));
    proposals.push_back(result.proposal().SerializeAsString());
    plain.Commit({}, result);
  }
  TinySequence drafted(kPrompt, Greedy());
  drafted.slot = 1;
  drafted.Commit({}, Verify(drafted.NextVerify({})));
  // A tree: a wrong sibling first, then two right tokens and a wrong one.
  const auto right = std::vector<int32_t>(plain.tokens.begin() + 6, plain.tokens.begin() + 8);
  v1::VerifyItem item = drafted.NextVerify({});
  for (const int32_t token : {(right[0] + 1) % 64, right[0], right[1]}) {
    item.add_draft_token_ids(token);
  }
  for (const int32_t parent : {-1, -1, 1}) item.add_parents(parent);
  const v1::VerifyResult result = Verify(Asking(item, 3, 8));
  ASSERT_EQ(result.num_accepted(), 2u);
  EXPECT_EQ(result.proposal().SerializeAsString(), proposals[3]);
}

// With EAGLE-1 and EAGLE-3.
class VerifierEagleTest : public VerifierHeadsTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Versions, VerifierEagleTest, ::testing::Bool());

TEST_P(VerifierEagleTest, ProposesTheSameAfterTheSameTokens) {
  testing::WriteRandomModel(dir_ / "target", {.num_layers = 16});  // so that a step costs little
  testing::WriteRandomEagle(dir_ / "heads",
                            {.is_third = GetParam(), .output_scale = GetParam() ? 0.7 : 2.0});
  EXPECT_EQ(Start(true).self_drafter().name(), "eagle");
  std::vector<int32_t> prompt;
  for (int i = 0; i < 70; ++i) prompt.push_back((i * i + 3 * i) % 61);
  TinySequence plain(prompt, Greedy());
  std::vector<std::string> proposals;
  for (int i = 0; i < 8; ++i) {
    const v1::VerifyItem item = Asking(plain.NextVerify({}), 4, 12);
    const v1::VerifyResult result = Verify(item);
    EXPECT_GT(result.proposal().token_ids_size(), 0);
    EXPECT_EQ(Verify(item).SerializeAsString(), result.SerializeAsString());
    proposals.push_back(result.proposal().SerializeAsString());
    plain.Commit({}, result);
  }
  // Another slot finds the first page. Of a tree, two tokens are kept.
  TinySequence drafted(prompt, Greedy());
  drafted.slot = 1;
  const v1::VerifyResult first = Verify(drafted.NextVerify({}));
  EXPECT_EQ(first.num_cached_tokens(), 64u);
  drafted.Commit({}, first);
  const std::vector<int32_t> right(plain.tokens.begin() + 71, plain.tokens.begin() + 73);
  v1::VerifyItem item = drafted.NextVerify({});
  for (const int32_t token : {(right[0] + 1) % 64, right[0], right[1]}) {
    item.add_draft_token_ids(token);
  }
  for (const int32_t parent : {-1, -1, 1}) item.add_parents(parent);
  const v1::VerifyResult result = Verify(Asking(item, 4, 12));
  ASSERT_EQ(result.num_accepted(), 2u);
  EXPECT_EQ(result.proposal().SerializeAsString(), proposals[3]);
  // A verifier that comes back computes its rows anew.
  verifier_.reset();
  server_.reset();
  Start(true);
  const std::vector<int32_t> text(plain.tokens.begin(), plain.tokens.begin() + 75);
  TinySequence again(text, Greedy());
  EXPECT_EQ(Verify(Asking(again.NextVerify({}), 4, 12)).proposal().SerializeAsString(),
            proposals[5]);
}

TEST_F(VerifierHeadsTest, RefusesWhatItCannotPropose) {
  Start(true);
  TinySequence sequence(kPrompt, Greedy());
  const auto refusal = [&](uint32_t depth, uint32_t nodes, bool sample) {
    v1::VerifyItem item = Asking(sequence.NextVerify({}), depth, nodes);
    --sequence.verifier_number;
    item.set_sample(sample);
    const v1::VerifyResult result = Verify(item);
    EXPECT_EQ(result.state().code(), v1::WORKER_CODE_INVALID_ARGUMENT);
    return result.state().message();
  };
  EXPECT_THAT(refusal(0, 4, true), HasSubstr("propose.max_depth: got 0, want from 1 to "));
  EXPECT_THAT(refusal(1000, 4, true), HasSubstr("propose.max_depth: got 1000"));
  EXPECT_THAT(refusal(2, 1000, true), HasSubstr("propose.max_nodes: got 1000, want at most "));
  EXPECT_THAT(refusal(2, 4, false), HasSubstr("`sample` is false"));
}

TEST_F(VerifierHeadsTest, AVerifierWithoutHeadsProposesNothing) {
  Start(false);
  TinySequence sequence(kPrompt, Greedy());
  const v1::VerifyResult result = Verify(Asking(sequence.NextVerify({}), 2, 4));
  EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK);
  EXPECT_FALSE(result.has_proposal());
}

// A verifier whose folder has heads of three families.
class VerifierSwapTest : public VerifierHeadsTest {
 protected:
  uint64_t last_wish_ = 0;

  void SetUp() override {
    VerifierHeadsTest::SetUp();
    testing::WriteRandomModel(dir_ / "target", {.num_layers = 16});  // so that a step costs little
    testing::WriteRandomHeads(dir_ / "all" / "medusa", {.has_bias = true, .output_scale = 2.0});
    testing::WriteRandomHeads(dir_ / "all" / "other", {.has_bias = true, .seed = 7});
    testing::WriteRandomEagle(dir_ / "all" / "eagle", {.output_scale = 2.0});
    testing::WriteRandomEagle(dir_ / "all" / "eagle3", {.is_third = true, .output_scale = 0.7});
    testing::WriteRandomHeads(dir_ / "all" / "misfit", {.hidden_size = 16});
    heads_folder_ = dir_ / "all";
  }
  // Asks for heads with a wish of its own, or with the wish of this number.
  v1::VerifierReply Ask(const std::string& heads, uint64_t wish = 0) {
    return AskAs(*verifier_, heads, wish == 0 ? ++last_wish_ : wish);
  }
  static v1::VerifierReply AskAs(VerifierClient& client, const std::string& heads, uint64_t wish) {
    v1::VerifierCommand command;
    command.mutable_set_heads()->set_heads(heads);
    command.mutable_set_heads()->set_wish(wish);
    return client.Call(command);
  }
  // Asks until the heads are loaded, or cannot be.
  v1::VerifierReply Set(const std::string& heads) {
    const uint64_t wish = ++last_wish_;
    v1::VerifierReply reply = Ask(heads, wish);
    while (reply.set_heads().loading()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      reply = Ask(heads, wish);
    }
    return reply;
  }
  // What is proposed after a text by a verifier that began with the heads.
  std::string ProposalOf(const std::string& heads, const std::vector<int32_t>& text) {
    std::filesystem::remove_all(dir_ / "heads");
    std::filesystem::copy(dir_ / "all" / heads, dir_ / "heads");
    Start(true);
    TinySequence sequence(text, Greedy());
    const std::string proposal =
        Verify(Asking(sequence.NextVerify({}), 3, 8)).proposal().SerializeAsString();
    verifier_.reset();
    server_.reset();
    return proposal;
  }
};

TEST_F(VerifierSwapTest, TheNewestWishOfAllSessionsCounts) {
  Start(true);
  VerifierClient other(server_->address());
  testing::Attach<VerifierClient, v1::VerifierCommand>(other, 2);
  // Both sessions go on asking, as routers do. Neither may begin anew.
  (void)AskAs(*verifier_, "eagle", 101);
  (void)AskAs(other, "other", 102);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(AskAs(*verifier_, "eagle", 101).set_heads().superseded());
    const v1::SetHeadsReply reply = AskAs(other, "other", 102).set_heads();
    EXPECT_FALSE(reply.superseded());
    if (!reply.loading()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const v1::SetHeadsReply last = AskAs(other, "other", 102).set_heads();
  EXPECT_FALSE(last.loading());
  EXPECT_EQ(last.self_drafter().heads(), "other");
  EXPECT_EQ(last.self_drafter().version(), 1u)
      << "the heads that nobody wanted any more never drafted";
}

TEST_F(VerifierSwapTest, ALoadThatNobodyWantsAnyMoreIsDropped) {
  Start(true);
  (void)Ask("eagle");
  const v1::SetHeadsReply back = Ask("").set_heads();
  EXPECT_FALSE(back.loading()) << "they are there";
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const v1::SelfDrafter drafter = Ask("", last_wish_).set_heads().self_drafter();
    ASSERT_EQ(drafter.heads(), "heads");
    ASSERT_EQ(drafter.version(), 0u);
  }
  EXPECT_EQ(Set("eagle").set_heads().self_drafter().heads(), "eagle");
}

TEST_F(VerifierSwapTest, AWishNeedsANumber) {
  Start(true);
  EXPECT_THAT(AskAs(*verifier_, "eagle", 0).error().message(), HasSubstr("set_heads.wish: got 0"));
}

TEST_F(VerifierSwapTest, TextsThatAreOlderThanTheHeadsGetNoProposal) {
  Start(true);
  TinySequence sequence(kPrompt, Greedy());
  sequence.Commit({}, Verify(sequence.NextVerify({})));
  (void)Set("eagle3");  // reads states that the rows lack
  const v1::VerifyResult result = Verify(Asking(sequence.NextVerify({}), 3, 8));
  EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK);
  EXPECT_FALSE(result.has_proposal()) << "which is not the same as an empty one";
}

TEST_F(VerifierSwapTest, HeadsOfAnyFamilyReplaceEachOther) {
  std::vector<int32_t> text;
  for (int i = 0; i < 150; ++i) text.push_back((i * i + 3 * i) % 61);
  std::map<std::string, std::string> expected;
  for (const std::string heads : {"medusa", "other", "eagle", "eagle3"}) {
    expected[heads] = ProposalOf(heads, text);
    EXPECT_GT(expected[heads].size(), 0u) << heads;
  }
  EXPECT_EQ(Start(false).self_drafter().name(), "");
  int slot = 0;
  for (const std::string heads :
       {"eagle", "medusa", "eagle", "eagle3", "other", "eagle3", "eagle"}) {
    const v1::SetHeadsReply reply = Set(heads).set_heads();
    EXPECT_EQ(reply.self_drafter().heads(), heads);
    EXPECT_EQ(reply.self_drafter().name(), heads.starts_with("eagle") ? "eagle" : "medusa");
    TinySequence sequence(text, Greedy());
    sequence.slot = slot++ % 3;
    sequence.epoch = static_cast<uint32_t>(slot);
    v1::VerifyItem item = Asking(sequence.NextVerify({}), 3, 8);
    item.mutable_at()->set_command_number(static_cast<uint64_t>(slot) * 100);
    const v1::VerifyResult result = Verify(item);
    EXPECT_EQ(result.proposal().SerializeAsString(), expected[heads]) << heads;
  }
  EXPECT_EQ(Set("none").set_heads().self_drafter().name(), "");
  EXPECT_FALSE(Ask("none").set_heads().loading()) << "it has none already";
  EXPECT_TRUE(Set("").set_heads().self_drafter().is_first());
  EXPECT_EQ(Set("").set_heads().self_drafter().name(), "") << "it began without heads";
}

TEST_F(VerifierSwapTest, AnEmptyNameMeansTheHeadsOfTheBeginning) {
  EXPECT_EQ(Start(true).self_drafter().heads(), "heads");
  EXPECT_EQ(Set("eagle").set_heads().self_drafter().heads(), "eagle");
  const v1::SelfDrafter first = Set("").set_heads().self_drafter();
  EXPECT_EQ(first.heads(), "heads");
  EXPECT_EQ(first.name(), "medusa");
}

TEST_F(VerifierSwapTest, AStreamGoesOnThroughSwaps) {
  Start(true);
  TinySequence plain(kPrompt, Greedy());
  for (int i = 0; i < 24; ++i) plain.Commit({}, Verify(plain.NextVerify({})));
  TinySequence swapped(kPrompt, Greedy());
  swapped.slot = 1;
  size_t num_proposed = 0;
  for (int i = 0; i < 24; ++i) {
    if (i % 6 == 3) (void)Ask(i % 12 == 3 ? "eagle3" : "medusa", 1000 + static_cast<uint64_t>(i));
    const v1::VerifyResult result = Verify(Asking(swapped.NextVerify({}), 3, 8));
    ASSERT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
    num_proposed += static_cast<size_t>(result.proposal().token_ids_size());
    swapped.Commit({}, result);
    if (i % 6 == 4) (void)Set(i % 12 == 4 ? "eagle3" : "medusa");
  }
  EXPECT_EQ(swapped.tokens, plain.tokens);
  EXPECT_GT(num_proposed, 0u);
}

TEST_F(VerifierSwapTest, HeadsThatDoNotFitLeaveThoseThatAreThere) {
  Start(true);
  const auto refusal = [&](const std::string& heads) {
    const v1::VerifierReply reply = Set(heads);
    EXPECT_EQ(Ask("").set_heads().self_drafter().heads(), "heads");
    return reply.error().message();
  };
  EXPECT_THAT(refusal("misfit"), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("nothing"),
              HasSubstr("\"nothing\" is not in --heads-folder, which holds eagle, eagle3, medusa"));
  EXPECT_THAT(refusal("../heads"), HasSubstr("want the name of a folder in --heads-folder"));
  // Heads that came after the start, and keep more than the pages have room for.
  testing::WriteRandomEagle(dir_ / "all" / "late",
                            {.is_third = true, .layer_ids = {0, 3, 5, 7, 9}, .output_scale = 0.7});
  EXPECT_THAT(refusal("late"), HasSubstr("start it again"));
}

TEST_F(VerifierSwapTest, WithoutAFolderHeadsStay) {
  heads_folder_.clear();
  Start(true);
  EXPECT_THAT(Set("medusa").error().message(), HasSubstr("started without --heads-folder"));
  EXPECT_EQ(Ask("").set_heads().self_drafter().heads(), "heads");
}

TEST_F(VerifierSwapTest, OtherSessionsLearnOfASwap) {
  Start(true);
  VerifierClient other(server_->address());
  testing::Attach<VerifierClient, v1::VerifierCommand>(other, 2);
  (void)Set("eagle");
  TinySequence sequence(kPrompt, Greedy());
  v1::VerifierCommand command;
  *command.mutable_verify()->add_items() = Asking(sequence.NextVerify({}), 3, 8);
  v1::VerifierReply reply = other.Call(command);
  EXPECT_EQ(reply.verify().self_drafter().heads(), "eagle");
  sequence.Commit({}, reply.verify().results(0));
  *command.mutable_verify()->mutable_items(0) = Asking(sequence.NextVerify({}), 3, 8);
  reply = other.Call(command);
  EXPECT_FALSE(reply.verify().has_self_drafter()) << "it was told already";
}

}  // namespace
}  // namespace tandem::verifier_heads_test
