#include "services/router/engine/rounds/commit.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/router/engine/rounds/deliver.h"
#include "services/router/engine/rounds/verify.h"
#include "tests/router/engine_driver.h"
#include "tests/router/toy_round_state.h"
#include "tests/router/toy_slots.h"

namespace tandem::commit_test {
namespace {

using testing::CallResult;
using testing::ToyRoundState;
using testing::ToySlots;
using Ids = std::vector<int32_t>;
using Sources = std::vector<int>;

constexpr int kAccepted = v1::TOKEN_SOURCE_ACCEPTED;
constexpr int kRecovered = v1::TOKEN_SOURCE_RECOVERED;
constexpr int kBonus = v1::TOKEN_SOURCE_BONUS;
constexpr int kPlain = v1::TOKEN_SOURCE_PLAIN;

constexpr uint32_t kTokens = 9;  // tokens of the prompt

// Keeps what it is told.
struct Observer : EngineObserver {
  void OnFirstToken(double seconds) override { first_tokens.push_back(seconds); }
  void OnCommitted(const CommittedRound& round) override { rounds.push_back(round); }
  void OnCompleted(const v1::Completion& completion) override { completions.push_back(completion); }

  std::vector<double> first_tokens;
  std::vector<CommittedRound> rounds;
  std::vector<v1::Completion> completions;
};

v1::VerifyResult Verdict(uint32_t num_accepted, int32_t next_token_id) {
  v1::VerifyResult verdict;
  verdict.set_num_accepted(num_accepted);
  verdict.set_next_token_id(next_token_id);
  return verdict;
}

// A pod with two slots and both workers. Slot 0 decodes a request, whose call is 1. Tokens 0, 1 and
// 2 are the letters a, b and c, and so on.
struct Pod {
  explicit Pod(GenerationRequest request = ToySlots::Request(kTokens),
               const EngineOptions& options = {}, bool is_replay = false)
      : made(2, options, &observer) {
    made.AttachWorkers();
    toy.AddDecoding(std::move(request), is_replay);
  }

  // The next round of a slot. Like a draft model, the drafter has no row of the last draft token.
  VerifyBatch::Item Round(const Ids& draft, uint32_t slot = 0) {
    const Sequence& sequence = toy.sequence(slot);
    VerifyBatch::Item item;
    item.slot = slot;
    item.serial = sequence.serial;
    item.end = sequence.committed_len();
    item.begin = item.end - 1;
    item.num_drafted = static_cast<uint32_t>(draft.size());
    item.sample = true;
    item.wants_logprobs = sequence.request.wants_logprobs;
    if (draft.empty()) return item;
    item.proposal = toy.Draft(slot, draft.size());
    item.proposal.token_ids = draft;
    item.proposal.session = state.slots.peer(kDrafterPeer).session();
    item.proposal.model = "toy-draft";
    toy.Hold(kDrafterPeer, slot, item.end, item.num_drafted - 1);
    return item;
  }

  // Commits a round, and returns what clients got.
  CallResult CommitItem(const VerifyBatch::Item& item, v1::VerifyResult verdict, double now = 10) {
    CommitAndDeliver(state, item, verdict, now);
    return TakeOutput();
  }
  CallResult Commit(const Ids& draft, uint32_t num_accepted, int32_t next_token_id) {
    return CommitItem(Round(draft), Verdict(num_accepted, next_token_id));
  }
  CallResult TakeOutput() {
    CallResult got;
    for (EngineCommand& command : std::exchange(state.out.commands, {})) {
      if (const auto* write = std::get_if<WriteResponse>(&command)) {
        calls.push_back(write->call);
        got.Add(write->response);
      } else if (auto* line = std::get_if<LogLine>(&command)) {
        lines.push_back(std::move(*line));
      }
    }
    return got;
  }

  static Ids Output(const Sequence& sequence) {
    return Ids(sequence.output_tokens().begin(), sequence.output_tokens().end());
  }
  const Counts& counts() const { return state.out.counts; }
  uint64_t num_fallbacks() const {
    const auto& fallbacks = counts().fallbacks.values;
    return std::accumulate(fallbacks.begin(), fallbacks.end(), uint64_t{0});
  }

  Observer observer;
  ToyRoundState made;
  RoundState& state = made.state;
  ToySlots& toy = made.toy;
  std::vector<CallId> calls;  // calls that something was written to
  std::vector<LogLine> lines;
};

GenerationRequest StoppingAt(int32_t token_id) {
  GenerationRequest request = ToySlots::Request(kTokens);
  request.stop_token_ids = {token_id};
  return request;
}

// ---------------------------------------------------------------- tokens

TEST(CommitTest, AcceptedTokensAndTheRecoveredOneGoToTheClientInTheirOrder) {
  Pod pod;
  const CallResult got = pod.Commit({1, 2, 3, 4}, 2, 9);
  EXPECT_EQ(got.ids, (Ids{1, 2, 9}));
  EXPECT_EQ(got.sources, (Sources{kAccepted, kAccepted, kRecovered}));
  EXPECT_EQ(got.text, "bcj");
  EXPECT_FALSE(got.completion.has_value());
  EXPECT_EQ(Pod::Output(pod.toy.sequence(0)), (Ids{1, 2, 9}));
  EXPECT_TRUE(pod.state.out.reports.empty());
}

TEST(CommitTest, ABlockThatIsRejectedAtItsFirstTokenGivesTheRecoveredTokenAlone) {
  Pod pod;
  const CallResult got = pod.Commit({1, 2, 3, 4}, 0, 9);
  EXPECT_EQ(got.ids, Ids{9});
  EXPECT_EQ(got.sources, Sources{kRecovered});
}

TEST(CommitTest, AFullyAcceptedBlockIsFollowedByABonus) {
  Pod pod;
  const CallResult got = pod.Commit({1, 2}, 2, 9);
  EXPECT_EQ(got.ids, (Ids{1, 2, 9}));
  EXPECT_EQ(got.sources, (Sources{kAccepted, kAccepted, kBonus}));
}

TEST(CommitTest, ARoundWithoutADraftGivesAPlainToken) {
  Pod pod;
  const CallResult got = pod.Commit({}, 0, 9);
  EXPECT_EQ(got.ids, Ids{9});
  EXPECT_EQ(got.sources, Sources{kPlain});
}

// a follows the pending token and has the siblings b and c. d and e follow c, and f follows e.
VerifyBatch::Item WithTree(VerifyBatch::Item item) {
  item.parents = {-1, -1, -1, 2, 2, 4};
  return item;
}
v1::VerifyResult VerdictOfTree(const std::vector<uint32_t>& path, int32_t next_token_id) {
  v1::VerifyResult verdict = Verdict(static_cast<uint32_t>(path.size()), next_token_id);
  verdict.mutable_path()->Assign(path.begin(), path.end());
  return verdict;
}

TEST(CommitTest, TheAcceptedPathOfATreeGoesToTheClient) {
  Pod pod;
  const CallResult got =
      pod.CommitItem(WithTree(pod.Round({0, 1, 2, 3, 4, 5})), VerdictOfTree({2, 4}, 9));
  EXPECT_EQ(got.ids, (Ids{2, 4, 9}));
  EXPECT_EQ(got.sources, (Sources{kAccepted, kAccepted, kRecovered})) << "e has a child";
  EXPECT_EQ(pod.CommitItem(WithTree(pod.Round({0, 1, 2, 3, 4, 5})), VerdictOfTree({1}, 8)).sources,
            (Sources{kAccepted, kBonus}))
      << "b has none";
  EXPECT_EQ(pod.CommitItem(WithTree(pod.Round({0, 1, 2, 3, 4, 5})), VerdictOfTree({}, 8)).sources,
            (Sources{kRecovered}));
  ASSERT_EQ(pod.observer.rounds.size(), 3u);
  const CommittedRound& round = pod.observer.rounds[0];
  EXPECT_EQ(round.num_drafted, 6);
  EXPECT_EQ(round.depth, 3);
  EXPECT_EQ(round.num_accepted, 2);
  EXPECT_EQ(round.num_tested, 3);
  EXPECT_EQ(pod.observer.rounds[1].num_tested, 1);
}

TEST(CommitTest, EachRoundIsWrittenOnceAndToTheCallOfItsSlot) {
  Pod pod;
  pod.toy.AddDecoding(5);
  EXPECT_EQ(pod.Commit({1, 2}, 1, 9).ids, (Ids{1, 9}));
  EXPECT_EQ(pod.CommitItem(pod.Round({3}, 1), Verdict(1, 8)).ids, (Ids{3, 8}));
  EXPECT_EQ(pod.Commit({}, 0, 7).ids, Ids{7});
  EXPECT_EQ(pod.calls, (std::vector<CallId>{1, 2, 1}));
  EXPECT_EQ(Pod::Output(pod.toy.sequence(0)), (Ids{1, 9, 7}));
  EXPECT_EQ(Pod::Output(pod.toy.sequence(1)), (Ids{3, 8}));
}

TEST(CommitTest, ASequenceKnowsTheNumericsOfItsNewestToken) {
  Pod pod;
  pod.toy.sequence(0).numerics_id = "another build";
  pod.Commit({}, 0, 9);
  EXPECT_EQ(pod.toy.sequence(0).numerics_id, pod.state.workers.info(kVerifierPeer)->numerics_id());
  EXPECT_TRUE(pod.toy.sequence(0).has_mixed_numerics);
}

// ---------------------------------------------------------------- the end of a request

TEST(CommitTest, TheFirstTokenThatEndsTheRequestEndsItAndLaterTokensAreNeitherEmittedNorCounted) {
  Pod pod(StoppingAt(2));
  const CallResult got = pod.Commit({1, 2, 3, 4}, 4, 9);
  EXPECT_EQ(got.ids, (Ids{1, 2}));
  EXPECT_EQ(got.sources, (Sources{kAccepted, kAccepted}));
  EXPECT_EQ(got.text, "b");
  ASSERT_TRUE(got.completion.has_value());
  EXPECT_EQ(got.completion->finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(got.completion->stop_token_id(), 2);
  EXPECT_EQ(got.completion->usage().completion_tokens(), 2);
  EXPECT_EQ(pod.calls.size(), 1u) << "the tokens and the completion are in one message";
}

TEST(CommitTest, ARequestThatEndedLeavesItsSlotAndIsReported) {
  Pod pod(StoppingAt(2));
  const Sequence* sequence = &pod.toy.sequence(0);
  pod.Commit({1, 2, 3, 4}, 4, 9);
  EXPECT_EQ(pod.state.slots[0].sequence, nullptr);
  ASSERT_EQ(pod.state.out.reports.size(), 1u);
  const PodReport& report = pod.state.out.reports[0];
  EXPECT_EQ(report.kind, PodReport::Kind::kFinished);
  EXPECT_TRUE(report.status.ok());
  ASSERT_EQ(report.sequence.get(), sequence);
  EXPECT_EQ(Pod::Output(*sequence), (Ids{1, 2}));
  for (PeerId peer = 0; peer < 2; ++peer) {
    v1::UpdateSlots updates;
    pod.state.slots.peer(peer).TakeCloses(&updates);
    EXPECT_EQ(updates.closes_size(), 1) << WorkerName(KindOf(peer));
  }
}

TEST(CommitTest, TheTokenAfterTheAcceptedOnesCanEndTheRequestToo) {
  Pod pod(StoppingAt(9));
  const CallResult got = pod.Commit({1, 2}, 1, 9);
  EXPECT_EQ(got.ids, (Ids{1, 9}));
  EXPECT_EQ(got.sources, (Sources{kAccepted, kRecovered}));
  EXPECT_TRUE(got.completion.has_value());
  ASSERT_EQ(pod.observer.rounds.size(), 1u);
  EXPECT_TRUE(pod.observer.rounds[0].emitted_last);
  EXPECT_EQ(pod.observer.rounds[0].num_tested, 2);
}

TEST(CommitTest, AStopTextEndsTheRequestInTheMiddleOfABlock) {
  GenerationRequest request = ToySlots::Request(kTokens);
  request.stop_strings = {"cd"};
  Pod pod(std::move(request));
  const CallResult got = pod.Commit({1, 2, 3, 4}, 4, 9);
  EXPECT_EQ(got.ids, (Ids{1, 2, 3}));
  EXPECT_EQ(got.text, "b");
  ASSERT_TRUE(got.completion.has_value());
  EXPECT_EQ(got.completion->finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(got.completion->stop_string(), "cd");
  EXPECT_EQ(got.completion->usage().completion_tokens(), 3);
}

TEST(CommitTest, MaxTokensEndsTheRequestInTheMiddleOfABlock) {
  Pod short_of_the_block(ToySlots::Request(kTokens, 3));
  CallResult got = short_of_the_block.Commit({1, 2, 3, 4}, 4, 9);
  EXPECT_EQ(got.ids, (Ids{1, 2, 3}));
  ASSERT_TRUE(got.completion.has_value());
  EXPECT_EQ(got.completion->finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(got.completion->usage().completion_tokens(), 3);

  Pod as_long_as_the_round(ToySlots::Request(kTokens, 5));
  got = as_long_as_the_round.Commit({1, 2, 3, 4}, 4, 9);
  EXPECT_EQ(got.ids, (Ids{1, 2, 3, 4, 9}));
  EXPECT_TRUE(got.completion.has_value());

  Pod longer(ToySlots::Request(kTokens, 6));
  EXPECT_FALSE(longer.Commit({1, 2, 3, 4}, 4, 9).completion.has_value());
  EXPECT_TRUE(longer.state.out.reports.empty());
}

TEST(CommitTest, TheCompletionSaysHowTheRequestWasServed) {
  GenerationRequest request = ToySlots::Request(kTokens, 2);
  request.open.mutable_sampling()->set_seed(77);
  request.open.set_reproducible(true);
  Pod pod(request);
  pod.toy.sequence(0).num_cached.verifier = 4;
  pod.toy.sequence(0).num_cached.drafter = 3;
  const CallResult got = pod.Commit({1}, 1, 9);
  ASSERT_TRUE(got.completion.has_value());
  const v1::Completion& completion = *got.completion;
  EXPECT_EQ(completion.usage().prompt_tokens(), 9);
  EXPECT_EQ(completion.usage().completion_tokens(), 2);
  EXPECT_EQ(completion.usage().cached_prompt_tokens(), 4);
  EXPECT_EQ(completion.usage().cached_draft_tokens(), 3);
  EXPECT_EQ(completion.seed(), 77u);
  EXPECT_TRUE(completion.lossless());
  EXPECT_TRUE(completion.speculation().reproducible());
  ASSERT_EQ(pod.observer.completions.size(), 1u);
  EXPECT_EQ(pod.observer.completions[0].SerializeAsString(), completion.SerializeAsString());

  request.open.set_reproducible(false);
  request.open.set_lenience(0.5f);
  const CallResult lenient = Pod(request).Commit({1}, 1, 9);
  ASSERT_TRUE(lenient.completion.has_value());
  EXPECT_FALSE(lenient.completion->lossless());
  EXPECT_FALSE(lenient.completion->speculation().reproducible());
}

// ---------------------------------------------------------------- log-probs

TEST(CommitTest, EachEmittedTokenHasItsLogprobs) {
  GenerationRequest request = StoppingAt(3);
  request.wants_logprobs = true;
  Pod pod(std::move(request));
  const auto judged = [](v1::VerifyResult verdict) {
    for (uint32_t i = 0; i <= verdict.num_accepted(); ++i) {
      verdict.add_logprobs()->set_logprob(-1.0f - static_cast<float>(i));
    }
    return verdict;
  };
  CallResult got = pod.CommitItem(pod.Round({1, 2}), judged(Verdict(1, 9)));
  EXPECT_EQ(got.logprobs, (std::vector<float>{-1, -2}));
  got = pod.CommitItem(pod.Round({1, 2, 3, 4}), judged(Verdict(4, 9)));
  EXPECT_EQ(got.ids, (Ids{1, 2, 3}));
  EXPECT_EQ(got.logprobs, (std::vector<float>{-1, -2, -3})) << "those of later tokens are dropped";
}

TEST(CommitTest, ARequestThatWantsNoLogprobsNeedsNone) {
  Pod pod;
  const CallResult got = pod.Commit({1, 2}, 2, 9);
  EXPECT_EQ(got.ids.size(), 3u);
  EXPECT_TRUE(got.logprobs.empty());
}

// ---------------------------------------------------------------- ring errors

TEST(CommitTest, ABlockThatCouldNotBeJudgedIsAPlainRound) {
  Pod pod;
  pod.state.slots[0].fallback = Fallback::kDraftFailed;
  v1::VerifyResult verdict = Verdict(0, 9);
  verdict.set_ring_error("sequence differs");
  const CallResult got = pod.CommitItem(pod.Round({1, 2, 3, 4}), verdict);
  EXPECT_EQ(got.ids, Ids{9});
  EXPECT_EQ(got.sources, Sources{kPlain});
  EXPECT_EQ(pod.counts().ring_errors, 1u);
  EXPECT_EQ(pod.counts().fallbacks[Fallback::kRingError], 1u);
  EXPECT_EQ(pod.num_fallbacks(), 1u);
  EXPECT_EQ(pod.counts().rollbacks[Worker::kVerifier], 0u);
  ASSERT_EQ(pod.observer.rounds.size(), 1u);
  EXPECT_EQ(pod.observer.rounds[0].num_drafted, 0);
  EXPECT_EQ(pod.observer.rounds[0].num_tested, 0);
  EXPECT_EQ(pod.observer.rounds[0].draft_model, "");
  EXPECT_EQ(pod.toy.sequence(0).models->estimate(0).rounds_without_draft(), 1u);
  const WorkerSlot& held = pod.state.slots.peer(kDrafterPeer).slot(0);
  EXPECT_EQ(held.cached_len, 9u) << "no row of the block was committed";
  EXPECT_EQ(held.held_len, 12u);
}

TEST(CommitTest, TheLogSaysWhoseBlockCouldNotBeJudged) {
  Pod pod;
  v1::VerifyResult verdict = Verdict(0, 9);
  verdict.set_ring_error("sequence differs");
  pod.CommitItem(pod.Round({1, 2}), verdict);
  ASSERT_EQ(pod.lines.size(), 1u);
  const LogLine& line = pod.lines[0];
  EXPECT_EQ(line.level, LogLine::Level::kWarning);
  EXPECT_EQ(line.text, "log-prob ring: sequence differs");
  EXPECT_EQ(line.summary, "log-prob ring: a draft could not be judged; the log says why");
  EXPECT_EQ(line.request_id, "1");
  EXPECT_EQ(line.slot, 0u);

  verdict.set_ring_error(std::string(100000, 'x'));
  pod.CommitItem(pod.Round({1, 2}), verdict);
  ASSERT_EQ(pod.lines.size(), 2u);
  EXPECT_LT(pod.lines[1].text.size(), 1000u) << "a worker's text is cut";
}

TEST(CommitTest, ARoundThatWasJudgedLogsNothing) {
  Pod pod;
  pod.Commit({1, 2}, 1, 9);
  EXPECT_TRUE(pod.lines.empty());
  EXPECT_EQ(pod.counts().ring_errors, 0u);
}

// ---------------------------------------------------------------- what a round counts

TEST(CommitTest, ARoundCountsWhatWasDraftedTestedAndAccepted) {
  Pod pod;
  pod.Commit({1, 2, 3, 4}, 2, 9);
  pod.Commit({1, 2}, 2, 9);
  pod.Commit({}, 0, 9);
  ASSERT_EQ(pod.observer.rounds.size(), 3u);

  const CommittedRound& rejected = pod.observer.rounds[0];
  EXPECT_EQ(rejected.num_drafted, 4);
  EXPECT_EQ(rejected.num_accepted, 2);
  EXPECT_EQ(rejected.num_tested, 3) << "the rejected token was tested too";
  EXPECT_EQ(rejected.last_source, v1::TOKEN_SOURCE_RECOVERED);
  EXPECT_TRUE(rejected.emitted_last);
  EXPECT_EQ(rejected.draft_model, "toy-draft");

  const CommittedRound& accepted = pod.observer.rounds[1];
  EXPECT_EQ(accepted.num_drafted, 2);
  EXPECT_EQ(accepted.num_accepted, 2);
  EXPECT_EQ(accepted.num_tested, 2);
  EXPECT_EQ(accepted.last_source, v1::TOKEN_SOURCE_BONUS);

  const CommittedRound& plain = pod.observer.rounds[2];
  EXPECT_EQ(plain.num_drafted, 0);
  EXPECT_EQ(plain.num_accepted, 0);
  EXPECT_EQ(plain.num_tested, 0);
  EXPECT_EQ(plain.last_source, v1::TOKEN_SOURCE_PLAIN);
  EXPECT_TRUE(plain.emitted_last);
  EXPECT_EQ(plain.draft_model, "");
}

TEST(CommitTest, CountsStopAtTheTokenThatEndedTheRequest) {
  for (const int last : {1, 2, 3}) {  // the third token is the last that was accepted
    Pod pod(StoppingAt(last));
    const CallResult got = pod.Commit({1, 2, 3, 4}, 3, 9);
    ASSERT_EQ(pod.observer.rounds.size(), 1u);
    const CommittedRound& round = pod.observer.rounds[0];
    EXPECT_EQ(round.num_drafted, 4) << last;
    EXPECT_EQ(round.num_accepted, last);
    EXPECT_EQ(round.num_tested, last);
    EXPECT_FALSE(round.emitted_last) << last;
    ASSERT_TRUE(got.completion.has_value());
    EXPECT_EQ(got.completion->usage().completion_tokens(), last);
  }
}

TEST(CommitTest, TheCompletionSumsTheRoundsUp) {
  Pod pod(ToySlots::Request(kTokens, 6));
  pod.Commit({}, 0, 9);
  pod.Commit({1, 2, 3}, 1, 9);
  const CallResult got = pod.Commit({1, 2, 3, 4}, 4, 9);  // the request takes three of these
  ASSERT_TRUE(got.completion.has_value());
  const v1::SpeculationStats& stats = got.completion->speculation();
  EXPECT_EQ(stats.num_plain_rounds(), 1);
  EXPECT_EQ(stats.num_drafts(), 2);
  EXPECT_EQ(stats.num_draft_tokens(), 7);
  EXPECT_EQ(stats.num_accepted_tokens(), 4);
  EXPECT_EQ(stats.num_tested_tokens(), 5);
  EXPECT_EQ(stats.drafter(), "toy-draft");
}

TEST(CommitTest, TheControllerLearnsTheWholeVerdict) {
  Pod pod(StoppingAt(2));
  const auto prior = [&](AcceptanceMode mode) {
    return pod.state.draft_models.controller().NewEstimate(mode).Conditional(0);
  };
  const double unknown = prior(AcceptanceMode::kGreedy);
  pod.Commit({1, 2, 3, 4}, 3, 9);
  ASSERT_EQ(pod.state.out.reports.size(), 1u);
  AcceptancePrior no_requests;
  AcceptanceEstimate expected(&no_requests);
  expected.Observe(JudgedChain(4, 3));
  for (uint32_t position = 0; position < 5; ++position) {
    EXPECT_EQ(pod.state.out.reports[0].sequence->models->estimate(0).Conditional(position),
              expected.Conditional(position))
        << position;
  }
  EXPECT_GT(prior(AcceptanceMode::kGreedy), unknown);
  EXPECT_EQ(prior(AcceptanceMode::kSampled), unknown) << "each mode has a prior of its own";
}

TEST(CommitTest, ADraftOfFormerHeadsTeachesNothingAboutNewOnes) {
  for (const bool are_swapped : {false, true}) {
    Pod pod;
    LookupPriors& priors = pod.state.draft_models.controller().lookup_priors();
    Sequence& sequence = pod.toy.sequence(0);
    sequence.lookups = std::make_unique<RequestLookups>(
        DrafterSet(Drafter::kMedusa), NgramOptions(), AcceptanceMode::kGreedy, kTokens, 20,
        std::vector<int32_t>(), &priors);
    VerifyBatch::Item item = pod.Round({1, 2});
    item.proposal.drafter = Drafter::kMedusa;
    item.proposal.match_length = 1;
    item.proposal.beliefs = {0.9f, 0.9f};
    item.proposal.rival_worth = 0;
    item.proposal.heads_version = priors.self_version();
    item.proposal.session = 0;
    if (are_swapped) {  // while the verifier judges
      priors.ForgetSelf();
      sequence.lookups->SetSelf(Drafter::kMedusa);
    }
    const AcceptancePrior unknown;
    pod.CommitItem(item, Verdict(0, 9));
    const double learned = priors.Of(AcceptanceMode::kGreedy, Drafter::kMedusa, 0).Mean();
    if (are_swapped) {
      EXPECT_EQ(learned, unknown.Mean());
    } else {
      EXPECT_LT(learned, unknown.Mean());
    }
  }
}

TEST(CommitTest, APlainRoundSaysWhyItHadNoDraft) {
  Pod pod;
  pod.state.slots[0].fallback = Fallback::kNoPages;
  pod.Commit({1, 2}, 1, 9);
  EXPECT_EQ(pod.num_fallbacks(), 0u) << "this one had a draft";
  pod.Commit({}, 0, 9);
  EXPECT_EQ(pod.counts().fallbacks[Fallback::kNoPages], 1u);
  EXPECT_EQ(pod.num_fallbacks(), 1u);
  EXPECT_EQ(pod.toy.sequence(0).models->estimate(0).rounds_without_draft(), 1u);
}

TEST(CommitTest, ThePiecesOfPromptsAreNoRoundsWithoutADraft) {
  Pod pod;
  VerifyBatch::Item prompt = pod.Round({});
  prompt.begin = 0;
  EXPECT_EQ(pod.CommitItem(prompt, Verdict(0, 9)).ids, Ids{9});
  EXPECT_EQ(pod.num_fallbacks(), 0u);
  EXPECT_EQ(pod.toy.sequence(0).models->estimate(0).rounds_without_draft(), 0u);
}

TEST(CommitTest, ARequestThatIsToDecodePlainlyHasNoFallback) {
  EngineOptions plainly;
  plainly.draft_length = 0;
  Pod server_says(ToySlots::Request(kTokens), plainly);
  server_says.Commit({}, 0, 9);
  EXPECT_EQ(server_says.num_fallbacks(), 0u);

  GenerationRequest request = ToySlots::Request(kTokens);
  request.draft_length = 0;
  Pod request_says(request);
  request_says.Commit({}, 0, 9);
  EXPECT_EQ(request_says.num_fallbacks(), 0u);

  request.draft_length = 2;
  Pod request_prevails(request, plainly);
  request_prevails.Commit({}, 0, 9);
  EXPECT_EQ(request_prevails.num_fallbacks(), 1u);
}

TEST(CommitTest, TheFirstTokenIsTimedFromTheArrivalAndOnce) {
  Pod pod;
  auto late = std::make_unique<Sequence>(CallId{7}, ToySlots::Request(kTokens, 3),
                                         /*arrived_at=*/2.0, &pod.made.tokenizer);
  late->models = pod.state.draft_models.NewChoice(late->mode());
  pod.state.slots.Occupy(1, std::move(late), 1);
  pod.CommitItem(pod.Round({}, 1), Verdict(0, 9), /*now=*/3.5);
  EXPECT_EQ(pod.observer.first_tokens, std::vector<double>{1.5});
  const CallResult got = pod.CommitItem(pod.Round({1}, 1), Verdict(1, 9), /*now=*/4.0);
  EXPECT_EQ(pod.observer.first_tokens.size(), 1u);
  ASSERT_TRUE(got.completion.has_value());
  EXPECT_EQ(got.completion->timings().time_to_first_token_seconds(), 1.5);
  EXPECT_EQ(got.completion->timings().decode_seconds(), 0.5);
}

// ---------------------------------------------------------------- the slots alone

TEST(CommitTest, ACommitChangesTheSlotsAndReturnsWhatOthersMustLearn) {
  ToySlots toy(1);
  const EngineOptions options;
  v1::AttachReply verifier;
  verifier.set_numerics_id("numerics");
  const CommitTerms terms{&options, &verifier};
  const uint32_t slot = toy.AddDecoding(ToySlots::Request(kTokens, 3));
  VerifyBatch::Item item;
  item.slot = slot;
  item.end = toy.sequence(slot).committed_len();
  item.begin = item.end - 1;
  item.num_drafted = 4;
  item.proposal = toy.Draft(slot, 4);
  item.proposal.model = "toy-draft";
  v1::VerifyResult verdict = Verdict(1, 9);
  Committed committed = tandem::Commit(terms, item, verdict, /*now=*/2, &toy.slots);
  EXPECT_EQ(committed.first_token_seconds, 2.0);
  EXPECT_EQ(committed.num_rejected, 3u);
  EXPECT_FALSE(committed.fallback.has_value());
  EXPECT_EQ(committed.round.num_tested, 2);
  EXPECT_EQ(committed.response.token_ids_size(), 2);
  EXPECT_FALSE(committed.response.has_completion());
  EXPECT_EQ(toy.sequence(slot).numerics_id, "numerics");

  item.num_drafted = 0;
  item.end += 2;
  item.begin += 2;
  toy.slots[slot].fallback = Fallback::kNoRing;
  verdict = Verdict(0, 8);
  committed = tandem::Commit(terms, item, verdict, /*now=*/3, &toy.slots);
  EXPECT_FALSE(committed.first_token_seconds.has_value());
  EXPECT_EQ(committed.num_rejected, 0u);
  EXPECT_EQ(committed.fallback, Fallback::kNoRing);
  EXPECT_TRUE(committed.response.has_completion());
  EXPECT_EQ(Pod::Output(toy.sequence(slot)), (Ids{5, 9, 8})) << "it stays in its slot";
}

// ---------------------------------------------------------------- rows of draft tokens

TEST(CommitTest, RowsThatTheVerifierRolledBackAreCounted) {
  Pod pod;
  pod.Commit({1, 2, 3, 4}, 1, 9);
  EXPECT_EQ(pod.counts().rollbacks[Worker::kVerifier], 1u);
  EXPECT_EQ(pod.counts().rolled_back_rows[Worker::kVerifier], 3u);
  pod.Commit({1, 2}, 2, 9);
  pod.Commit({}, 0, 9);
  EXPECT_EQ(pod.counts().rollbacks[Worker::kVerifier], 1u) << "nothing was rejected";
  EXPECT_EQ(pod.counts().rolled_back_rows[Worker::kVerifier], 3u);
  EXPECT_EQ(pod.counts().rollbacks[Worker::kDrafter], 0u) << "the drafter was not told yet";

  Pod ended(StoppingAt(1));
  ended.Commit({1, 2, 3, 4}, 2, 9);
  EXPECT_EQ(ended.counts().rolled_back_rows[Worker::kVerifier], 2u)
      << "these are rows that the verifier rejected, whatever the request took";
}

TEST(CommitTest, TheDrafterKeepsTheRowsOfAcceptedTokens) {
  Pod pod;
  const WorkerSlot& held = pod.state.slots.peer(kDrafterPeer).slot(0);
  pod.Commit({1, 2, 3, 4}, 2, 9);
  EXPECT_EQ(held.cached_len, 11u);
  EXPECT_EQ(held.held_len, 12u) << "the row of the rejected token waits for its rollback";
  pod.Commit({1, 2, 3, 4}, 4, 9);
  EXPECT_EQ(held.cached_len, 15u) << "the drafter never fed the last draft token";
  EXPECT_EQ(held.held_len, 15u);
}

TEST(CommitTest, OfATreeTheDrafterKeepsTheRowsOfItsChain) {
  Pod pod;
  const WorkerSlot& held = pod.state.slots.peer(kDrafterPeer).slot(0);
  const auto tree = [&] {
    VerifyBatch::Item item = pod.Round({1, 2, 3, 4, 5, 6});
    item.parents = {-1, 0, 1, -1, 0, 1};  // 4, 5 and 6 are siblings of 1, 2 and 3
    pod.toy.Hold(kDrafterPeer, 0, item.end, 2);
    return item;
  };
  pod.CommitItem(tree(), VerdictOfTree({0, 1, 2}, 9));
  EXPECT_EQ(held.cached_len, 11u) << "the drafter never fed the last token of the chain";
  pod.CommitItem(tree(), VerdictOfTree({0, 4}, 9));
  EXPECT_EQ(held.cached_len, 13u + 1) << "the second token is a sibling";
  EXPECT_EQ(held.held_len, 13u + 2);
  pod.CommitItem(tree(), VerdictOfTree({3}, 9));
  EXPECT_EQ(held.cached_len, 16u);
  const AcceptanceEstimate& acceptance = pod.toy.sequence(0).models->estimate(0);
  EXPECT_GT(acceptance.OfSibling(1), 0.15) << "two of six siblings of rank 1 were accepted";
}

TEST(CommitTest, NoRowIsKeptThatTheDrafterDoesNotHoldForThisDraft) {
  Pod pod;
  const WorkerSlot& held = pod.state.slots.peer(kDrafterPeer).slot(0);
  VerifyBatch::Item of_a_former_session = pod.Round({1, 2, 3, 4});
  ++of_a_former_session.proposal.session;
  pod.CommitItem(of_a_former_session, Verdict(2, 9));
  EXPECT_EQ(held.cached_len, 9u);

  const VerifyBatch::Item resynchronized = pod.Round({1, 2, 3, 4});
  pod.toy.Hold(kDrafterPeer, 0, 5, 3);
  pod.CommitItem(resynchronized, Verdict(2, 9));
  EXPECT_EQ(held.cached_len, 5u);

  VerifyBatch::Item of_no_drafter = pod.Round({1, 2, 3, 4});
  of_no_drafter.proposal.session = 0;
  const uint32_t cached_len = held.cached_len;
  pod.CommitItem(of_no_drafter, Verdict(2, 9));
  EXPECT_EQ(held.cached_len, cached_len);
}

// ---------------------------------------------------------------- the audit

// A replay of the output 1, 2, 3.
struct Replay : Pod {
  Replay() : Pod(ToySlots::Request(kTokens), {}, /*is_replay=*/true) {}

  void Draw(int32_t token_id) { CompareReplay(state, 0, token_id); }
  bool ended() const { return state.slots[0].sequence == nullptr; }
};

TEST(CompareReplayTest, AReplayThatDrawsTheSameTokensEndsWithTheLastOfThem) {
  Replay replay;
  replay.Draw(1);
  replay.Draw(2);
  EXPECT_FALSE(replay.ended());
  EXPECT_EQ(Pod::Output(replay.toy.sequence(0)), (Ids{1, 2}));
  EXPECT_EQ(replay.made.audit.stats().num_replayed(), 0u);
  replay.Draw(3);
  EXPECT_TRUE(replay.ended());
  EXPECT_EQ(replay.made.audit.stats().num_replayed(), 1u);
  EXPECT_EQ(replay.made.audit.stats().num_mismatches(), 0u);
  ASSERT_EQ(replay.state.out.reports.size(), 1u);
  EXPECT_EQ(replay.state.out.reports[0].kind, PodReport::Kind::kFinished);
  EXPECT_TRUE(replay.state.out.reports[0].status.ok());
  EXPECT_TRUE(replay.state.out.commands.empty()) << "no client waits for it";
}

TEST(CompareReplayTest, AReplayEndsAtTheFirstTokenThatDiffers) {
  Replay replay;
  replay.Draw(1);
  replay.Draw(7);
  EXPECT_TRUE(replay.ended());
  EXPECT_EQ(replay.made.audit.stats().num_replayed(), 1u);
  EXPECT_EQ(replay.made.audit.stats().num_mismatches(), 1u);
  ASSERT_EQ(replay.state.out.reports.size(), 1u);
  EXPECT_TRUE(replay.state.out.reports[0].status.ok()) << "a finding is no error of the replay";
}

TEST(CompareReplayTest, TheLastTokenIsComparedToo) {
  Replay replay;
  for (const int32_t token_id : {1, 2, 7}) replay.Draw(token_id);
  EXPECT_TRUE(replay.ended());
  EXPECT_EQ(replay.made.audit.stats().num_mismatches(), 1u);
}

TEST(ReportAlarmTest, AFindingIsLoggedOnce) {
  Replay replay;
  ReportAlarm(replay.state);
  EXPECT_TRUE(replay.state.out.commands.empty()) << "nothing was found yet";
  replay.Draw(1);
  replay.Draw(7);
  ReportAlarm(replay.state);
  ReportAlarm(replay.state);
  replay.TakeOutput();
  ASSERT_EQ(replay.lines.size(), 1u);
  EXPECT_EQ(replay.lines[0].level, LogLine::Level::kError);
  EXPECT_EQ(replay.lines[0].text,
            "audit: request 1 decoded again without drafting differs first at output token 1: "
            "emitted 2, replayed 7");
  EXPECT_EQ(replay.lines[0].summary, "audit: found a difference; the log says where");
}

// Samples reach the audit on the way to Commit, which must not count them again.
TEST(OnVerifyTest, AuditSamplesCountOnceWhateverBecomesOfTheirTokens) {
  Pod pod(StoppingAt(1));
  VerifyBatch& batch = pod.state.verify.emplace();
  batch.session = pod.state.slots.verifier().session();
  batch.begun_at = 9;
  batch.sent_at = 9;
  batch.rows = 5;
  batch.items.push_back(pod.Round({1, 2, 3, 4}));
  pod.state.cohorts[0].stage = Cohort::Stage::kVerifying;
  v1::VerifyReply reply;
  reply.set_compute_seconds(0.5);
  v1::VerifyResult& result = *reply.add_results();
  result = Verdict(4, 9);
  result.mutable_state()->set_cached_len(kTokens + 4);
  for (int i = 0; i < 5; ++i) result.add_audit()->set_uniform(i < 4 ? 0.5 : 1);
  OnVerify(pod.state, reply, 10);
  EXPECT_EQ(pod.TakeOutput().ids, Ids{1});
  EXPECT_EQ(pod.made.audit.stats().num_samples(), 5u);
  ASSERT_EQ(pod.lines.size(), 1u) << "the target gives the last token no probability";
  EXPECT_EQ(pod.lines[0].level, LogLine::Level::kError);
  EXPECT_EQ(pod.lines[0].text.rfind("audit: after 5 samples of the drafter model ", 0), 0u);
}

// A pot that depended on the outcome of the round would be biased without a mistake.
TEST(OnVerifyTest, AuditSamplesCountForTheDrafterWhoseDraftWasSentWhateverBecameOfIt) {
  Pod pod;
  const auto judge = [&](VerifyBatch::Item item, v1::VerifyResult result) {
    result.mutable_state()->set_cached_len(item.end + result.num_accepted());
    for (uint32_t i = 0; i <= result.num_accepted(); ++i) result.add_audit()->set_uniform(0.5);
    VerifyBatch& batch = pod.state.verify.emplace();
    batch.session = pod.state.slots.verifier().session();
    batch.rows = 1 + item.num_drafted;
    batch.items.push_back(std::move(item));
    v1::VerifyReply reply;
    *reply.add_results() = std::move(result);
    OnVerify(pod.state, reply, 10);
  };
  const auto samples = [&] {
    std::map<std::string, uint64_t> found;
    const v1::AuditStats stats = pod.made.audit.stats();
    for (const v1::AuditDrafterStats& of : stats.drafters()) found[of.name()] = of.num_samples();
    return found;
  };
  using Samples = std::map<std::string, uint64_t>;
  judge(pod.Round({1, 2, 3}), Verdict(3, 9));
  EXPECT_EQ(samples(), (Samples{{"model", 4}}));
  judge(pod.Round({1, 2, 3}), Verdict(0, 9));
  EXPECT_EQ(samples(), (Samples{{"model", 5}})) << "rejected";
  v1::VerifyResult unread = Verdict(0, 9);
  unread.set_ring_error("torn");
  judge(pod.Round({1, 2, 3}), std::move(unread));
  EXPECT_EQ(samples(), (Samples{{"model", 6}})) << "decoded plainly, but chosen to be drafted";
  judge(pod.Round({}), Verdict(0, 9));
  EXPECT_EQ(samples(), (Samples{{"model", 6}, {"none", 1}}));
}

}  // namespace
}  // namespace tandem::commit_test
