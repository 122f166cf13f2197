// Tests a verifier with a drafter of its own, over a real gRPC Unix socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
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
  std::unique_ptr<WorkerModel> model_;
  std::unique_ptr<testing::RunningServer> server_;
  std::unique_ptr<VerifierClient> verifier_;
  double propose_seconds_ = 0;
};

TEST_F(VerifierHeadsTest, SaysWhichDrafterItHas) {
  EXPECT_EQ(Start(true).self_drafter(), "medusa");
  verifier_.reset();
  server_.reset();
  const v1::AttachReply without = Start(false);
  EXPECT_EQ(without.self_drafter(), "");
  EXPECT_EQ(without.self_draft_depth(), 0u);
}

TEST_F(VerifierHeadsTest, ProposesWithTheVerdictAndRepeatsItself) {
  EXPECT_EQ(Start(true).self_draft_depth(), 3u);
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
  EXPECT_EQ(Start(true).self_drafter(), "eagle");
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
  verifier_.reset();
  server_.reset();
  Start(false);
  EXPECT_THAT(refusal(2, 4, true), HasSubstr("has no drafter of its own (--heads)"));
}

}  // namespace
}  // namespace tandem::verifier_heads_test
