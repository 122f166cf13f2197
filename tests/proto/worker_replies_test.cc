#include "proto/worker_replies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tandem::worker_replies_test {
namespace {

constexpr uint32_t kVocabulary = 100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The words of the rule that an answer breaks; empty: the answer is accepted.
std::string Words(const absl::Status& status) { return std::string(status.message()); }

// ---------------------------------------------------------------- number of results

TEST(CheckNumResultsTest, ABatchIsAnsweredItemByItem) {
  EXPECT_TRUE(CheckNumResults(0, 0).ok());
  EXPECT_TRUE(CheckNumResults(3, 3).ok());
  EXPECT_EQ(CheckNumResults(3, 2), absl::InternalError("answered 3 items with 2"));
  EXPECT_EQ(CheckNumResults(3, 4), absl::InternalError("answered 3 items with 4"));
  EXPECT_EQ(CheckNumResults(0, 1), absl::InternalError("answered 0 items with 1"));
}

// ---------------------------------------------------------------- propose

// Four committed tokens after ten rows, and a draft of at most three tokens.
const SentPropose kPropose = {.slot = 2, .begin = 10, .end = 14, .draft_length = 3};

v1::ProposeResult Drafted(const std::vector<int32_t>& token_ids) {
  v1::ProposeResult result;
  result.mutable_state()->set_slot(kPropose.slot);
  result.mutable_state()->set_cached_len(kPropose.end);
  result.mutable_draft_token_ids()->Assign(token_ids.begin(), token_ids.end());
  return result;
}

absl::Status Check(const v1::ProposeResult& result) {
  return CheckProposeResult(kPropose, result, kVocabulary);
}

TEST(CheckProposeResultTest, AcceptsADraftUpToTheLengthThatWasAskedFor) {
  EXPECT_TRUE(Check(Drafted({})).ok());
  EXPECT_TRUE(Check(Drafted({5})).ok());
  EXPECT_TRUE(Check(Drafted({5, 6, 7})).ok());
  EXPECT_EQ(Check(Drafted({5, 6, 7, 8})),
            absl::InternalError("drafted 4 tokens and 0 parents where a chain of at most 3 and 0 "
                                "siblings were asked for"));
}

TEST(CheckProposeResultTest, ADrafterThatOnlyCatchesUpDraftsNothing) {
  SentPropose sent = kPropose;
  sent.draft_length = 0;
  EXPECT_TRUE(CheckProposeResult(sent, Drafted({}), kVocabulary).ok());
  EXPECT_EQ(Words(CheckProposeResult(sent, Drafted({5}), kVocabulary)),
            "drafted 1 tokens and 0 parents where a chain of at most 0 and 0 siblings were asked "
            "for");
}

TEST(CheckProposeResultTest, RefusesTheResultOfAnotherSlot) {
  v1::ProposeResult result = Drafted({5});
  result.mutable_state()->set_slot(3);
  EXPECT_EQ(Check(result), absl::InternalError("answered slot 2 with slot 3"));
}

TEST(CheckProposeResultTest, AcceptsNoTree) {
  v1::ProposeResult tree = Drafted({5, 6, 7});
  for (const int parent : {-1, 0, 0}) tree.add_parents(parent);
  EXPECT_EQ(Words(Check(tree)),
            "drafted 3 tokens and 3 parents where a chain of at most 3 and 0 siblings were asked "
            "for");
}

TEST(CheckProposeResultTest, SiblingsFollowTheChainByPosition) {
  SentPropose sent = kPropose;
  sent.num_siblings = {2, 0, 1};
  const auto check = [&](const std::vector<int32_t>& token_ids, const std::vector<int>& parents) {
    v1::ProposeResult result = Drafted(token_ids);
    result.mutable_parents()->Assign(parents.begin(), parents.end());
    return CheckProposeResult(sent, result, kVocabulary);
  };
  EXPECT_TRUE(check({5, 6, 7, 8, 9, 10}, {-1, 0, 1, -1, -1, 1}).ok());
  EXPECT_TRUE(check({5, 6}, {}).ok()) << "a chain that was cut short";
  EXPECT_TRUE(check({}, {}).ok());
  EXPECT_FALSE(check({5, 6, 7, 8, 9, 10}, {-1, 0, 1, -1, 1, -1}).ok()) << "another order";
  EXPECT_FALSE(check({5, 6, 7, 8, 9, 10}, {-1, 0, 1, -1, -1, 0}).ok()) << "another position";
  EXPECT_FALSE(check({5, 6, 7, 8, 9, 10}, {-1, 0, 0, -1, -1, 1}).ok()) << "no chain";
  EXPECT_FALSE(check({5, 6, 7, 8, 9}, {-1, 0, 1, -1, -1}).ok()) << "a sibling is missing";
  EXPECT_FALSE(check({5, 6, 7, 8, 9, 10, 11}, {-1, 0, 1, -1, -1, 1, 1}).ok()) << "one too many";
  EXPECT_FALSE(check({5, 6, 7, 8, 9, 10}, {}).ok()) << "a chain that is too long";
  EXPECT_EQ(Words(check({5, 6, 7, 8, 9}, {-1, 0, 1, -1, -1, 1})),
            "drafted 5 tokens with 6 parents");
  sent.num_siblings = {};
  EXPECT_FALSE(check({5, 6, 7}, {-1, 0, 1}).ok()) << "a chain needs no parents";
}

TEST(CheckProposeResultTest, DraftTokensAreInTheVocabulary) {
  EXPECT_TRUE(Check(Drafted({0, 99})).ok());
  EXPECT_EQ(Check(Drafted({5, 100})),
            absl::InternalError("drafted token 100 of a vocabulary of 100"));
  EXPECT_EQ(Check(Drafted({-1, 5})),
            absl::InternalError("drafted token -1 of a vocabulary of 100"));
}

TEST(CheckProposeResultTest, TheDrafterHoldsTheCommittedTokensAndAtMostItsOwn) {
  v1::ProposeResult result = Drafted({5});
  for (const uint32_t rows : {14, 16, 17}) {
    result.mutable_state()->set_cached_len(rows);
    EXPECT_TRUE(Check(result).ok()) << rows;
  }
  result.mutable_state()->set_cached_len(13);
  EXPECT_EQ(Check(result), absl::InternalError("holds 13 rows where 14 were sent"));
  result.mutable_state()->set_cached_len(18);
  EXPECT_EQ(Check(result), absl::InternalError("holds 18 rows where 14 were sent"));
}

TEST(CheckProposeResultTest, ThePrefixCacheGivesNoMoreRowsThanWereSent) {
  v1::ProposeResult result = Drafted({5});
  result.set_num_cached_tokens(4);
  EXPECT_TRUE(Check(result).ok());
  result.set_num_cached_tokens(5);
  EXPECT_EQ(Check(result), absl::InternalError("took 5 rows from its prefix cache of 4"));
}

TEST(CheckProposeResultTest, TheContentOfARefusalIsNotLookedInto) {
  v1::ProposeResult result = Drafted({-1, 5, 6, 7, 1000});
  result.add_parents(7);
  result.mutable_state()->set_cached_len(0);
  result.set_num_cached_tokens(1000);
  EXPECT_FALSE(Check(result).ok());
  for (const v1::WorkerCode code : {v1::WORKER_CODE_ABORTED, v1::WORKER_CODE_RESOURCE_EXHAUSTED,
                                    v1::WORKER_CODE_NON_FINITE_LOGITS}) {
    result.mutable_state()->set_code(code);
    EXPECT_TRUE(Check(result).ok()) << code;
  }
  result.mutable_state()->set_slot(3);
  EXPECT_EQ(Words(Check(result)), "answered slot 2 with slot 3");
}

// ---------------------------------------------------------------- verify

// One committed token after ten rows, and three draft tokens to judge.
const SentVerify kVerify = {.slot = 2, .begin = 10, .end = 11, .num_drafted = 3, .sample = true};

v1::VerifyResult Accepted(uint32_t num_accepted);

TEST(CheckVerifyResultTest, AcceptedTokensOfATreeAreAPath) {
  SentVerify sent = kVerify;
  sent.parents = {-1, -1, 1};
  const auto words = [&](std::vector<uint32_t> path) {
    v1::VerifyResult result = Accepted(static_cast<uint32_t>(path.size()));
    result.mutable_path()->Assign(path.begin(), path.end());
    return Words(CheckVerifyResult(sent, result, kVocabulary));
  };
  EXPECT_EQ(words({}), "");
  EXPECT_EQ(words({0}), "");
  EXPECT_EQ(words({1, 2}), "");
  EXPECT_EQ(words({0, 2}), "accepted 2 drafts that are no path of 3");
  EXPECT_EQ(words({2}), "accepted 1 drafts that are no path of 3");
  EXPECT_EQ(words({0, 0}), "accepted 2 drafts that are no path of 3");
  EXPECT_EQ(Words(CheckVerifyResult(sent, Accepted(1), kVocabulary)),
            "accepted 1 drafts that are no path of 3")
      << "the path is missing";
  v1::VerifyResult of_chain = Accepted(1);
  of_chain.add_path(0);
  EXPECT_EQ(Words(CheckVerifyResult(kVerify, of_chain, kVocabulary)),
            "accepted 1 drafts that are no path of 3")
      << "a chain has none";
}

TEST(CheckVerifyResultTest, SuccessorsAreThoseThatWereAskedFor) {
  SentVerify sent = kVerify;
  sent.num_successors = 2;
  v1::VerifyResult result = Accepted(1);
  EXPECT_EQ(Words(CheckVerifyResult(sent, result, kVocabulary)), "gave 0 successors of 2 tokens");
  for (const int id : {5, 99, -1, -1}) result.add_successors(id);
  EXPECT_EQ(Words(CheckVerifyResult(sent, result, kVocabulary)), "");
  result.set_successors(3, 100);
  EXPECT_EQ(Words(CheckVerifyResult(sent, result, kVocabulary)),
            "gave the successor 100 of a vocabulary of 100");
  EXPECT_EQ(Words(CheckVerifyResult(kVerify, result, kVocabulary)),
            "gave 4 successors of 2 tokens");
}

TEST(CheckVerifyResultTest, APromptIsScoredAsItWasAskedFor) {
  SentVerify sent = kVerify;
  sent.num_scored = 1;
  sent.num_top = 2;
  const auto words = [&](auto change) {
    v1::VerifyResult result = Accepted(0);
    v1::TokenLogprobs* const token = result.add_prompt_logprobs();
    token->set_logprob(-1);
    for (const int id : {0, 99}) {
      v1::TopLogprob* const top = token->add_top();
      top->set_token_id(id);
      top->set_logprob(-std::numeric_limits<float>::infinity());
    }
    change(result, *token);
    return Words(CheckVerifyResult(sent, result, kVocabulary));
  };
  using Result = v1::VerifyResult;
  using Token = v1::TokenLogprobs;
  const float nan = std::nanf("");
  EXPECT_EQ(words([](Result&, Token&) {}), "");
  EXPECT_EQ(words([](Result& result, Token&) { result.clear_prompt_logprobs(); }),
            "gave 0 prompt logprobs for 1 rows");
  EXPECT_EQ(words([](Result& result, Token&) { result.set_num_cached_tokens(1); }),
            "scored rows of its prefix cache");
  EXPECT_NE(words([&](Result&, Token& token) { token.set_logprob(nan); }), "");
  EXPECT_EQ(words([](Result&, Token& token) { token.set_logprob(0.5f); }),
            "gave the log-probability 0.5, want 0 at most");
  EXPECT_NE(words([&](Result&, Token& token) { token.mutable_top(1)->set_logprob(nan); }), "");
  EXPECT_EQ(words([](Result&, Token& token) { token.mutable_top()->RemoveLast(); }),
            "gave 1 top tokens, and perhaps texts, where 2 were asked for");
  EXPECT_NE(words([](Result&, Token& token) { token.set_text("a"); }), "");
  EXPECT_EQ(words([](Result&, Token& token) { token.mutable_top(0)->set_token_id(100); }),
            "gave the top token 100 of a vocabulary of 100, and perhaps its text");
  EXPECT_NE(words([](Result&, Token& token) { token.mutable_top(0)->set_bytes("a"); }), "");
  sent.num_scored = 0;
  EXPECT_EQ(words([](Result&, Token&) {}), "gave 1 prompt logprobs for 0 rows");
}

v1::VerifyResult Accepted(uint32_t num_accepted) {
  v1::VerifyResult result;
  result.mutable_state()->set_slot(kVerify.slot);
  result.mutable_state()->set_cached_len(kVerify.end + num_accepted);
  result.set_num_accepted(num_accepted);
  result.set_next_token_id(7);
  return result;
}

absl::Status Check(const v1::VerifyResult& result, const SentVerify& sent = kVerify) {
  return CheckVerifyResult(sent, result, kVocabulary);
}

TEST(CheckVerifyResultTest, AcceptsUpToAllDraftTokens) {
  EXPECT_TRUE(Check(Accepted(0)).ok());
  EXPECT_TRUE(Check(Accepted(3)).ok());
  EXPECT_EQ(Check(Accepted(4)), absl::InternalError("accepted 4 of 3 drafts"));
  EXPECT_EQ(Words(Check(Accepted(std::numeric_limits<uint32_t>::max()))),
            "accepted 4294967295 of 3 drafts");
}

TEST(CheckVerifyResultTest, RefusesTheResultOfAnotherSlot) {
  v1::VerifyResult result = Accepted(0);
  result.mutable_state()->set_slot(1);
  EXPECT_EQ(Check(result), absl::InternalError("answered slot 2 with slot 1"));
}

TEST(CheckVerifyResultTest, ADraftThatCouldNotBeJudgedHasNoAcceptedToken) {
  v1::VerifyResult result = Accepted(0);
  result.set_ring_error("sequence differs");
  EXPECT_TRUE(Check(result).ok());
  result = Accepted(1);
  result.set_ring_error("sequence differs");
  EXPECT_EQ(Words(Check(result)), "accepted 1 of 3 drafts");
}

TEST(CheckVerifyResultTest, TheVerifierHoldsExactlyTheCommittedAndAcceptedTokens) {
  v1::VerifyResult result = Accepted(2);
  result.mutable_state()->set_cached_len(12);
  EXPECT_EQ(Check(result), absl::InternalError("holds 12 rows where 13 were expected"));
  result.mutable_state()->set_cached_len(14);
  EXPECT_EQ(Check(result), absl::InternalError("holds 14 rows where 13 were expected"));
}

TEST(CheckVerifyResultTest, ThePrefixCacheGivesNoMoreRowsThanWereSent) {
  v1::VerifyResult result = Accepted(2);
  result.set_num_cached_tokens(1);
  EXPECT_TRUE(Check(result).ok());
  result.set_num_cached_tokens(2);
  EXPECT_EQ(Check(result), absl::InternalError("took 2 rows from its prefix cache of 1"));
}

TEST(CheckVerifyResultTest, TheDrawnTokenIsInTheVocabulary) {
  v1::VerifyResult result = Accepted(0);
  for (const int32_t id : {0, 99}) {
    result.set_next_token_id(id);
    EXPECT_TRUE(Check(result).ok()) << id;
  }
  result.set_next_token_id(100);
  EXPECT_EQ(Check(result), absl::InternalError("sampled token 100 of a vocabulary of 100"));
  result.set_next_token_id(-1);
  EXPECT_EQ(Check(result), absl::InternalError("sampled token -1 of a vocabulary of 100"));
}

TEST(CheckVerifyResultTest, EachEmittedTokenHasItsLogprobsIfTheyAreWanted) {
  v1::VerifyResult result = Accepted(1);
  EXPECT_TRUE(Check(result).ok());
  SentVerify sent = kVerify;
  sent.wants_logprobs = true;
  EXPECT_EQ(Check(result, sent), absl::InternalError("gave 0 logprobs for 2 tokens"));
  result.add_logprobs();
  EXPECT_EQ(Words(Check(result, sent)), "gave 1 logprobs for 2 tokens");
  result.add_logprobs();
  EXPECT_TRUE(Check(result, sent).ok());
  result.add_logprobs();
  EXPECT_EQ(Words(Check(result, sent)), "gave 3 logprobs for 2 tokens");
}

TEST(CheckVerifyResultTest, EachAuditSampleIsInItsRange) {
  v1::VerifyResult result = Accepted(1);
  result.add_audit()->set_uniform(0.5);
  EXPECT_TRUE(Check(result).ok());
  result.add_audit()->set_uniform(1.5);
  EXPECT_EQ(Check(result), absl::InvalidArgumentError("audit.uniform: got 1.5, want [0, 1]"));
}

TEST(CheckVerifyResultTest, WhatIsDrawnIsLookedIntoOnlyWhereADrawWasAskedFor) {
  v1::VerifyResult result = Accepted(0);
  result.set_next_token_id(-1);
  result.add_audit()->set_uniform(kNan);
  SentVerify chunk = kVerify;
  chunk.wants_logprobs = true;
  EXPECT_FALSE(Check(result, chunk).ok());
  chunk.sample = false;
  EXPECT_TRUE(Check(result, chunk).ok());
}

TEST(CheckVerifyResultTest, TheContentOfARefusalIsNotLookedInto) {
  v1::VerifyResult result = Accepted(4);
  result.mutable_state()->set_cached_len(1000);
  result.set_next_token_id(-1);
  result.set_num_cached_tokens(1000);
  result.add_audit()->set_uniform(kNan);
  EXPECT_FALSE(Check(result).ok());
  for (const v1::WorkerCode code : {v1::WORKER_CODE_ABORTED, v1::WORKER_CODE_RESOURCE_EXHAUSTED,
                                    v1::WORKER_CODE_NON_FINITE_LOGITS}) {
    result.mutable_state()->set_code(code);
    EXPECT_TRUE(Check(result).ok()) << code;
  }
  result.mutable_state()->set_slot(1);
  EXPECT_EQ(Words(Check(result)), "answered slot 2 with slot 1");
}

// ---------------------------------------------------------------- audit

v1::AuditSample Sample(double uniform, double excess) {
  v1::AuditSample sample;
  sample.set_uniform(uniform);
  sample.set_draft_mode_excess(excess);
  return sample;
}

TEST(CheckAuditSampleTest, AcceptsWhatIsInTheRangesWithTheirEnds) {
  for (const double uniform : {0.0, 0.5, 1.0}) {
    for (const double excess : {-1.0, 0.0, 1.0}) {
      EXPECT_TRUE(CheckAuditSample(Sample(uniform, excess)).ok()) << uniform << " " << excess;
    }
  }
}

TEST(CheckAuditSampleTest, RefusesWhatIsOutsideOfItsRange) {
  EXPECT_EQ(CheckAuditSample(Sample(-0.25, 0)),
            absl::InvalidArgumentError("audit.uniform: got -0.25, want [0, 1]"));
  EXPECT_EQ(CheckAuditSample(Sample(1.25, 0)),
            absl::InvalidArgumentError("audit.uniform: got 1.25, want [0, 1]"));
  EXPECT_FALSE(CheckAuditSample(Sample(std::nextafter(1.0, 2.0), 0)).ok());
  EXPECT_EQ(CheckAuditSample(Sample(0.5, -1.25)),
            absl::InvalidArgumentError("audit.draft_mode_excess: got -1.25, want [-1, 1]"));
  EXPECT_EQ(CheckAuditSample(Sample(0.5, 1.25)),
            absl::InvalidArgumentError("audit.draft_mode_excess: got 1.25, want [-1, 1]"));
}

TEST(CheckAuditSampleTest, RefusesWhatIsNoNumber) {
  EXPECT_EQ(CheckAuditSample(Sample(kNan, 0)),
            absl::InvalidArgumentError("audit.uniform: got nan, want [0, 1]"));
  EXPECT_EQ(CheckAuditSample(Sample(0.5, kNan)),
            absl::InvalidArgumentError("audit.draft_mode_excess: got nan, want [-1, 1]"));
  EXPECT_FALSE(CheckAuditSample(Sample(std::numeric_limits<double>::infinity(), 0)).ok());
  EXPECT_FALSE(CheckAuditSample(Sample(0.5, -std::numeric_limits<double>::infinity())).ok());
}

// ---------------------------------------------------------------- log-prob rows

TEST(AnswersItemTest, RowsBelongToTheItemWithTheirEntry) {
  SentPropose sent = kPropose;
  v1::LogProbChunk chunk;
  chunk.set_rows(3);
  EXPECT_FALSE(AnswersItem(sent, chunk)) << "an item without an entry has no rows";
  v1::RingReference& entry = sent.ring.emplace();
  entry.set_entry(4);
  entry.set_sequence(5);
  entry.set_ring_epoch(6);
  *chunk.mutable_ring() = entry;
  EXPECT_TRUE(AnswersItem(sent, chunk));
  chunk.mutable_ring()->set_entry(3);
  EXPECT_FALSE(AnswersItem(sent, chunk));
  *chunk.mutable_ring() = entry;
  chunk.mutable_ring()->set_sequence(4);
  EXPECT_FALSE(AnswersItem(sent, chunk)) << "the entry was used before";
  *chunk.mutable_ring() = entry;
  chunk.mutable_ring()->set_ring_epoch(5);
  EXPECT_FALSE(AnswersItem(sent, chunk)) << "the ring is a former one";
}

TEST(CheckChunkTest, PiecesComeInOrderAndOnce) {
  SentPropose sent;
  sent.draft_length = 3;
  v1::LogProbChunk chunk;
  chunk.set_rows(2);
  chunk.set_data(std::string(24, 'x'));
  EXPECT_TRUE(CheckChunk(sent, chunk, 5).ok());
  sent.received_bytes = 24;
  EXPECT_EQ(CheckChunk(sent, chunk, 5),
            absl::InternalError("sent 24 bytes of log-prob rows at 0, after 24 of 40"));
  chunk.set_offset_bytes(24);
  EXPECT_FALSE(CheckChunk(sent, chunk, 5).ok()) << "it is 8 bytes too long";
  chunk.set_data(std::string(16, 'x'));
  EXPECT_TRUE(CheckChunk(sent, chunk, 5).ok());
  chunk.clear_data();
  EXPECT_EQ(CheckChunk(sent, chunk, 5),
            absl::InternalError("sent 0 bytes of log-prob rows at 24, after 24 of 40"));
  chunk.set_data(std::string(16, 'x'));
  sent.received_bytes = 40;
  chunk.set_offset_bytes(40);
  EXPECT_FALSE(CheckChunk(sent, chunk, 5).ok());
}

TEST(AnswersItemTest, EachDraftTokenHasAtMostOneRow) {
  SentPropose sent = kPropose;
  sent.ring.emplace().set_entry(4);
  v1::LogProbChunk chunk;
  *chunk.mutable_ring() = *sent.ring;
  chunk.set_rows(0);
  EXPECT_TRUE(AnswersItem(sent, chunk));
  chunk.set_rows(3);
  EXPECT_TRUE(AnswersItem(sent, chunk));
  chunk.set_rows(4);
  EXPECT_FALSE(AnswersItem(sent, chunk));
}

// ---------------------------------------------------------------- proposals of the verifier

v1::VerifyResult Proposed(const SentVerify& sent, const std::vector<int32_t>& token_ids,
                          const std::vector<int32_t>& parents) {
  v1::VerifyResult result;
  result.mutable_state()->set_slot(sent.slot);
  result.mutable_state()->set_cached_len(sent.end);
  result.set_next_token_id(4);
  v1::SelfProposal& proposal = *result.mutable_proposal();
  proposal.mutable_token_ids()->Assign(token_ids.begin(), token_ids.end());
  proposal.mutable_parents()->Assign(parents.begin(), parents.end());
  for (size_t i = 0; i < token_ids.size(); ++i) proposal.add_chances(0.5f);
  return result;
}

TEST(CheckProposalTest, AcceptsWhatWasAskedForAndNothingElse) {
  SentVerify sent = {.slot = 1, .begin = 9, .end = 10, .sample = true};
  const auto words = [&](const v1::VerifyResult& result) {
    return Words(CheckVerifyResult(sent, result, kVocabulary));
  };
  EXPECT_EQ(words(Proposed(sent, {1}, {})), "proposed a draft that was not asked for");
  EXPECT_EQ(words(Proposed(sent, {}, {})), "proposed a draft that was not asked for");
  sent.proposal_limits = {.max_depth = 2, .max_nodes = 4};
  EXPECT_EQ(words(Proposed(sent, {}, {})), "");
  EXPECT_EQ(words(Proposed(sent, {1, 2}, {})), "");
  EXPECT_EQ(words(Proposed(sent, {1, 2, 3, 0}, {-1, -1, 0, 1})), "");
  EXPECT_EQ(words(Proposed(sent, {1, 2, 3}, {})),
            "proposed a draft with draft_token_ids: 3 of a chain, the session was attached with at "
            "most 2");
  EXPECT_EQ(words(Proposed(sent, {1, 2, 3, 4, 5}, {-1, -1, -1, -1, -1})),
            "proposed a draft with draft_token_ids: 5 of a tree, the session was attached with at "
            "most 4");
  EXPECT_EQ(words(Proposed(sent, {1, 2, 3}, {-1, 0, 1})),
            "proposed a draft with parents: a path of 3 draft tokens, the session was attached "
            "with at most 2");
  EXPECT_EQ(words(Proposed(sent, {1, 2}, {-1, 1})),
            "proposed a draft with parents[1]: got 1, want an earlier draft token or -1");
  EXPECT_EQ(words(Proposed(sent, {100}, {})), "proposed token 100 of a vocabulary of 100");
  EXPECT_EQ(words(Proposed(sent, {-1}, {})), "proposed token -1 of a vocabulary of 100");
  v1::VerifyResult result = Proposed(sent, {1, 2}, {});
  result.mutable_proposal()->mutable_chances()->RemoveLast();
  EXPECT_EQ(words(result), "proposed 2 tokens with 1 chances");
  for (const double chance : {0.0, -0.1, 1.01, kNan}) {
    result = Proposed(sent, {1}, {});
    result.mutable_proposal()->set_chances(0, static_cast<float>(chance));
    EXPECT_NE(words(result).find("with the chance"), std::string::npos) << chance;
  }
  sent.sample = false;
  EXPECT_EQ(words(Proposed(sent, {1}, {})), "proposed a draft that was not asked for");
}

}  // namespace
}  // namespace tandem::worker_replies_test
