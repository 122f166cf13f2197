// Tests both workers in this process, over real gRPC Unix sockets, with tiny random models, on the
// device that workers_under_test.h stands for.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/sampling/transform/transform.h"
#include "services/draft/drafter_server.h"
#include "services/verifier/verifier_server.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/slots/to_slot_open.h"
#include "tests/worker/tiny_router.h"
#include "tests/worker/workers_under_test.h"

namespace tandem {
namespace {

using testing::DraftClient;
using ::testing::HasSubstr;
using testing::PointAt;
using testing::TinySequence;
using testing::ToSlotOpen;
using testing::VerifierClient;

constexpr size_t kContext = 96;
constexpr size_t kSlots = 3;
constexpr int32_t kPoison = 9;  // logits after it are not finite if a test asks for that
constexpr int32_t kBomb = 10;   // a pass that gets it fails
constexpr size_t kVocabularySize = 64;
const std::vector<int32_t> kPrompt = {5, 11, 3, 40, 22};

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

SamplingParams Sampled(bool reproducible) {
  SamplingParams params;
  params.seed = 1234;
  params.top_k = 20;
  params.repetition_penalty = 1.2f;
  params.frequency_penalty = 0.3f;
  params.reproducible = reproducible;
  return params;
}

// A tree in which the right tokens have wrong siblings before and after them.
struct TreeAround {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> parents;

  TreeAround(std::span<const int32_t> right, uint64_t seed) {
    int32_t last = -1;
    for (const int32_t token : right) {
      seed = ExtendTokenHash(seed, token);
      const auto wrong = static_cast<int32_t>((token + 1 + seed % 5) % kVocabularySize);
      const bool wrong_first = seed % 3 != 0;
      if (wrong_first) Add(wrong, last);
      if (wrong_first && seed % 7 == 0) Add(token, static_cast<int32_t>(token_ids.size()) - 1);
      Add(token, last);
      last = static_cast<int32_t>(token_ids.size()) - 1;
      if (!wrong_first) Add(wrong, parents.back());
    }
  }
  void Add(int32_t token_id, int32_t parent) {
    token_ids.push_back(token_id);
    parents.push_back(parent);
  }
};

class WorkerSessionTest : public ::testing::Test {
 protected:
  enum Model { kTarget, kOther };

  static void SetUpTestSuite() {
    folders_ = new testing::TempDir();
    for (const auto& [name, seed] : {std::pair("target", 1), std::pair("other", 2)}) {
      testing::RandomModelSpec spec;
      spec.seed = static_cast<uint64_t>(seed);
      // With tied embeddings, the model would repeat the last token again and again.
      spec.tied_embeddings = false;
      testing::WriteRandomModel(*folders_ / name, spec);
    }
  }
  static void TearDownTestSuite() {
    delete folders_;
    folders_ = nullptr;
  }
  static std::filesystem::path Folder(Model model) {
    return *folders_ / (model == kTarget ? "target" : "other");
  }

  static std::unique_ptr<WorkerModel> LoadWorkerModel(Model model, bool poisoned,
                                                      bool guesses = true) {
    std::optional<testing::Faults> faults;
    if (poisoned) faults = {.poison = kPoison, .bomb = kBomb};
    auto loaded = testing::LoadWorkerUnderTest({.folder = Folder(model),
                                                .threads = 1,
                                                .max_slots = kSlots,
                                                .max_context = kContext,
                                                .guesses = guesses},
                                               faults);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }

  void StartDraft(Model model, bool poisoned = false, uint32_t draft_model_number = 0,
                  bool guesses = true) {
    draft_.reset();
    draft_server_.reset();
    draft_shelf_.reset();
    draft_model_ = LoadWorkerModel(model, poisoned, guesses);
    draft_shelf_ = std::make_unique<ModelShelf>(draft_model_.get());
    const Address address = *Address::Parse("unix:" + (dir_ / "draft.sock").string());
    draft_server_ = std::make_unique<testing::RunningServer>(
        *StartDrafterServer(address, *draft_shelf_, testing::MakeProposerUnderTest));
    draft_ = std::make_unique<DraftClient>(draft_server_->address());
    testing::Attach<DraftClient, v1::DraftCommand>(*draft_, kSlots, draft_model_number);
  }
  void StartVerifier(bool poisoned = false) {
    verifier_model_ = LoadWorkerModel(kTarget, poisoned);
    const Address address = *Address::Parse("unix:" + (dir_ / "verifier.sock").string());
    verifier_server_ = std::make_unique<testing::RunningServer>(*VerifierServer::Start(
        address, *verifier_model_, dir_ / "ring", testing::MakeJudgeUnderTest));
    verifier_ = std::make_unique<VerifierClient>(verifier_server_->address());
    testing::Attach<VerifierClient, v1::VerifierCommand>(*verifier_, kSlots);
  }

  // Runs a new sequence in slot 0 for `num_tokens` output tokens.
  TinySequence Generate(const SamplingParams& params, uint32_t draft_length, size_t num_tokens,
                        uint64_t ring_epoch = 0, std::vector<uint32_t> num_siblings = {}) {
    TinySequence sequence(kPrompt, params);
    sequence.num_siblings = std::move(num_siblings);
    sequence.epoch = ++epoch_;
    sequence.draft_number = sequence.verifier_number = 0;
    sequence.ring_epoch = ring_epoch;
    sequence.ring_sequence = ring_sequence_;
    OpenFirst(sequence);
    while (sequence.tokens.size() < kPrompt.size() + num_tokens && !HasFatalFailure()) {
      sequence.Round(draft_.get(), *verifier_, draft_length);
      EXPECT_EQ(sequence.ring_error, "");
      num_rounds_ += 1;
      num_drafted_ += sequence.num_drafted;
      num_accepted_ += sequence.num_accepted;
    }
    draft_number_ = std::max(draft_number_, sequence.draft_number);
    verifier_number_ = std::max(verifier_number_, sequence.verifier_number);
    ring_sequence_ = sequence.ring_sequence;
    sequence.tokens.resize(kPrompt.size() + num_tokens);
    return sequence;
  }

  // Returns the number of tokens that a test has time for.
  static size_t NumTokens(size_t most, size_t part = 8) {
    return testing::RunsFast() ? most : most / part;
  }

  // Opens the epoch at both workers. The command numbers continue from the last sequence.
  void OpenFirst(TinySequence& sequence) {
    sequence.draft_number = draft_number_;
    sequence.verifier_number = verifier_number_;
    if (draft_ != nullptr) {
      v1::DraftCommand command;
      v1::ProposeItem& item = *command.mutable_propose()->add_items();
      *item.mutable_at() = PointAt(sequence.slot, sequence.epoch, ++sequence.draft_number, {}, 0);
      *item.mutable_open() = ToSlotOpen(sequence.params, sequence.prompt_length);
      const v1::DraftReply reply = draft_->Call(command);
      ASSERT_EQ(reply.propose().results(0).state().code(), v1::WORKER_CODE_OK)
          << reply.propose().results(0).state().message();
    }
    if (verifier_ != nullptr) {
      v1::VerifierCommand command;
      v1::VerifyItem& item = *command.mutable_verify()->add_items();
      *item.mutable_at() =
          PointAt(sequence.slot, sequence.epoch, ++sequence.verifier_number, {}, 0);
      *item.mutable_open() = ToSlotOpen(sequence.params, sequence.prompt_length);
      item.add_token_ids(sequence.tokens[0]);  // a prefill chunk of one token
      const v1::VerifierReply reply = verifier_->Call(command);
      ASSERT_EQ(reply.verify().results(0).state().code(), v1::WORKER_CODE_OK)
          << reply.verify().results(0).state().message();
      sequence.verifier_cached = 1;
    }
  }

  v1::VerifyResult Verify(const v1::VerifyItem& item) {
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() = item;
    const v1::VerifierReply reply = verifier_->Call(command);
    EXPECT_EQ(reply.verify().results_size(), 1) << reply.error().message();
    return reply.verify().results(0);
  }
  v1::ProposeResult Propose(const v1::ProposeItem& item) {
    v1::DraftCommand command;
    *command.mutable_propose()->add_items() = item;
    const v1::DraftReply reply = draft_->Call(command);
    EXPECT_EQ(reply.propose().results_size(), 1) << reply.error().message();
    return reply.propose().results(0);
  }

  // Returns the greedy output of the target alone, without workers and gRPC.
  static std::vector<int32_t> DecodeDirectly(size_t num_tokens) {
    ThreadPool threads(1);
    const auto model = *LanguageModel::Load(Folder(kTarget), &threads);
    const auto pages = *KvPagePool::Create(model->description(),
                                           HostKvMemory::Bytes(model->description(), kContext));
    KvCache cache(pages.get(), kContext);
    std::vector<int32_t> tokens = kPrompt;
    std::vector<int32_t> lacking = kPrompt;
    while (tokens.size() < kPrompt.size() + num_tokens) {
      const ForwardItem item{.cache = &cache, .token_ids = lacking, .parents = {}, .num_logits = 1};
      const LogitsView logits = *model->Forward(std::span(&item, 1));
      tokens.push_back(Argmax({logits.row(0), kVocabularySize}));
      lacking = {tokens.back()};
    }
    return tokens;
  }

  static testing::TempDir* folders_;
  testing::TempDir dir_;
  std::unique_ptr<WorkerModel> draft_model_;
  std::unique_ptr<ModelShelf> draft_shelf_;
  std::unique_ptr<WorkerModel> verifier_model_;
  std::unique_ptr<testing::RunningServer> draft_server_;
  std::unique_ptr<testing::RunningServer> verifier_server_;
  std::unique_ptr<DraftClient> draft_;
  std::unique_ptr<VerifierClient> verifier_;
  uint32_t epoch_ = 0;
  uint64_t draft_number_ = 0;
  uint64_t verifier_number_ = 0;
  uint64_t ring_sequence_ = 0;
  size_t num_rounds_ = 0;
  size_t num_drafted_ = 0;
  size_t num_accepted_ = 0;
};
testing::TempDir* WorkerSessionTest::folders_ = nullptr;

TEST_F(WorkerSessionTest, GreedyDraftingEqualsPlainDecodingWithAnyDrafter) {
  std::vector<int32_t> expected = DecodeDirectly(60);
  EXPECT_GT(std::set<int32_t>(expected.begin(), expected.end()).size(), 15)
      << "otherwise the sequence is too uniform";
  const size_t num_tokens = NumTokens(60);
  expected.resize(kPrompt.size() + num_tokens);
  StartVerifier();
  for (const Model drafter : {kOther, kTarget}) {
    StartDraft(drafter);
    draft_number_ = 0;
    for (uint32_t draft_length = 0; draft_length <= 8;
         draft_length += testing::RunsFast() ? 1 : 4) {
      num_drafted_ = num_accepted_ = num_rounds_ = 0;
      EXPECT_EQ(Generate(Greedy(), draft_length, num_tokens).tokens, expected)
          << "K = " << draft_length;
      if (drafter == kTarget) {
        EXPECT_EQ(num_accepted_, num_drafted_) << "the target's own drafts";
        EXPECT_EQ(num_rounds_, (num_tokens + draft_length) / (draft_length + 1));
      } else if (draft_length > 0) {
        EXPECT_LT(num_accepted_, num_drafted_);
      }
    }
  }
}

TEST_F(WorkerSessionTest, ReproducibleOutputDoesNotDependOnTheDraft) {
  StartVerifier();
  StartDraft(kOther);
  const size_t num_tokens = NumTokens(50);
  const std::vector<int32_t> expected = Generate(Sampled(true), 0, num_tokens).tokens;
  for (uint32_t draft_length : {1, 3, 8}) {
    EXPECT_EQ(Generate(Sampled(true), draft_length, num_tokens).tokens, expected);
  }
  StartDraft(kTarget);
  draft_number_ = 0;
  num_drafted_ = num_accepted_ = 0;
  EXPECT_EQ(Generate(Sampled(true), 5, num_tokens).tokens, expected);
  EXPECT_EQ(num_accepted_, num_drafted_) << "the same noise on the same distribution";
}

TEST_F(WorkerSessionTest, TreesGiveTheOutputOfPlainDecoding) {
  StartVerifier();
  const size_t num_tokens = NumTokens(80, 4);
  SamplingParams penalized = Sampled(false);
  penalized.presence_penalty = 0.8f;
  penalized.repetition_penalty = 1.3f;
  penalized.num_logprobs = 2;
  penalized.num_successors = 5;
  SamplingParams recycled = Greedy();
  recycled.num_successors = 3;
  for (const SamplingParams& params :
       {Greedy(), Sampled(true), Sampled(false), penalized, recycled}) {
    const std::vector<int32_t> expected = Generate(params, 0, num_tokens).tokens;
    TinySequence sequence(kPrompt, params);
    sequence.epoch = ++epoch_;
    OpenFirst(sequence);
    size_t num_accepted = 0;
    while (sequence.tokens.size() < expected.size() && !HasFatalFailure()) {
      const size_t begin = sequence.tokens.size();
      const size_t depth = begin < kPrompt.size() + 1 ? 0 : begin % 5;
      const size_t end = std::min(expected.size(), begin + depth);
      const TreeAround tree{std::span(expected).subspan(begin, end - begin), begin};
      sequence.RoundWithTree(*verifier_, tree.token_ids, tree.parents);
      EXPECT_EQ(sequence.num_accepted, end - begin) << "all right tokens are in the tree";
      num_accepted += sequence.num_accepted;
    }
    verifier_number_ = sequence.verifier_number;
    sequence.tokens.resize(expected.size());
    EXPECT_EQ(sequence.tokens, expected);
    EXPECT_GT(num_accepted, num_tokens / 4);
  }
}

TEST_F(WorkerSessionTest, SampledBlocksAreJudgedInTheSameWayOverBothTransports) {
  StartVerifier();
  StartDraft(kOther);
  const uint64_t shared =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  ASSERT_NE(shared, 0);
  // There are enough tokens for an accepted and a rejected draft.
  const size_t num_tokens = NumTokens(50, 5);
  const std::vector<int32_t> expected = Generate(Sampled(false), 4, num_tokens, shared).tokens;
  EXPECT_GT(num_accepted_, 0);
  EXPECT_LT(num_accepted_, num_drafted_);
  const uint64_t in_stream =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_INLINE, kVocabularySize);
  EXPECT_GT(in_stream, shared);
  EXPECT_EQ(Generate(Sampled(false), 4, num_tokens, in_stream).tokens, expected);
}

TEST_F(WorkerSessionTest, TreesOfTheDraftModelGiveTheOutputOfPlainDecoding) {
  StartVerifier();
  StartDraft(kOther);
  const size_t num_tokens = NumTokens(80, 6);
  size_t num_from_siblings = 0;
  for (const SamplingParams& params : {Greedy(), Sampled(true)}) {
    const std::vector<int32_t> expected = Generate(params, 0, num_tokens).tokens;
    for (const std::vector<uint32_t>& num_siblings : {std::vector<uint32_t>{3, 1, 0, 2}, {0, 1}}) {
      const TinySequence sequence = Generate(params, 4, num_tokens, 0, num_siblings);
      EXPECT_EQ(sequence.tokens, expected);
      num_from_siblings += sequence.num_from_siblings;
    }
  }
  EXPECT_GT(num_from_siblings, 0u) << "a tenth of the siblings' positions, or more";
}

TEST_F(WorkerSessionTest, SampledTreesAreJudgedInTheSameWayOverBothTransports) {
  StartVerifier();
  StartDraft(kOther);
  const uint64_t shared =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  const size_t num_tokens = NumTokens(50, 5);
  const std::vector<uint32_t> num_siblings = {2, 1, 3};
  const TinySequence expected = Generate(Sampled(false), 4, num_tokens, shared, num_siblings);
  EXPECT_GT(num_accepted_, 0);
  EXPECT_EQ(num_drafted_ % (4 + 6), 0u) << "each draft is a whole tree";
  const uint64_t in_stream =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_INLINE, kVocabularySize);
  EXPECT_EQ(Generate(Sampled(false), 4, num_tokens, in_stream, num_siblings).tokens,
            expected.tokens);
  if (testing::RunsFast()) {
    EXPECT_GT(expected.num_from_siblings, 0u);
  }
}

TEST_F(WorkerSessionTest, ADraftOfTheTargetItselfIsAcceptedAsAWhole) {
  StartVerifier();
  StartDraft(kTarget);
  const uint64_t ring =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  Generate(Sampled(false), 5, NumTokens(50), ring);
  EXPECT_EQ(num_accepted_, num_drafted_);
}

TEST_F(WorkerSessionTest, RepeatedCommandsReplayTheirResults) {
  StartVerifier();
  StartDraft(kOther);
  const uint64_t ring =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  TinySequence sequence(kPrompt, Sampled(false));
  sequence.ring_epoch = ring;
  const v1::ProposeItem propose = sequence.NextPropose(4);
  const v1::ProposeResult proposed = Propose(propose);
  ASSERT_EQ(proposed.draft_token_ids_size(), 4);
  EXPECT_EQ(Propose(propose).SerializeAsString(), proposed.SerializeAsString());
  const v1::VerifyItem verify =
      sequence.NextVerify({proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()});
  const v1::VerifyResult verified = Verify(verify);
  ASSERT_EQ(verified.state().code(), v1::WORKER_CODE_OK);
  EXPECT_EQ(verified.ring_error(), "");
  // The ring entry is gone, so the result could not be computed again.
  EXPECT_EQ(Verify(verify).SerializeAsString(), verified.SerializeAsString());
  sequence.Commit(proposed, verified);
  for (int i = 0; i < 3; ++i) {
    sequence.Round(draft_.get(), *verifier_, 4);
    EXPECT_EQ(sequence.ring_error, "");
  }
  // A late copy of the first command replays the newest result and changes nothing.
  EXPECT_EQ(Verify(verify).state().command_number(), sequence.verifier_number);
  EXPECT_EQ(Verify(verify).state().cached_len(), sequence.verifier_cached);
  sequence.Round(draft_.get(), *verifier_, 4);
}

TEST_F(WorkerSessionTest, RollbackIsAbsoluteAndIdempotent) {
  StartVerifier();
  TinySequence sequence(kPrompt, Greedy());
  for (int i = 0; i < 6; ++i) sequence.Round(nullptr, *verifier_, 0);
  const std::vector<int32_t> tokens = sequence.tokens;
  v1::VerifierCommand command;
  *command.mutable_update_slots()->add_rollbacks() =
      PointAt(0, 1, ++sequence.verifier_number, tokens, 7);
  for (int i = 0; i < 3; ++i) {
    const v1::SlotState state = verifier_->Call(command).update_slots().rollbacks(0);
    EXPECT_EQ(state.code(), v1::WORKER_CODE_OK);
    EXPECT_EQ(state.cached_len(), 7);
    EXPECT_EQ(state.prefix_hash(), HashTokens(std::span(tokens).first(7)));
  }
  sequence.verifier_cached = 7;
  sequence.tokens.resize(8);
  while (sequence.tokens.size() < tokens.size()) sequence.Round(nullptr, *verifier_, 0);
  EXPECT_EQ(sequence.tokens, tokens);
  // Late copies of the rollback do not destroy newer rows, even if they travel with a Verify.
  EXPECT_EQ(verifier_->Call(command).update_slots().rollbacks(0).cached_len(),
            sequence.verifier_cached);
  v1::VerifierCommand riding;
  *riding.mutable_verify()->mutable_update_slots() = command.update_slots();
  *riding.mutable_verify()->add_items() = sequence.NextVerify({});
  const v1::VerifierReply reply = verifier_->Call(riding);
  EXPECT_EQ(reply.verify().update_slots().rollbacks(0).cached_len(), sequence.verifier_cached);
  EXPECT_EQ(reply.verify().results(0).state().code(), v1::WORKER_CODE_OK);
}

TEST_F(WorkerSessionTest, ARollbackTravelsWithTheNextCommand) {
  StartVerifier();
  TinySequence sequence(kPrompt, Greedy());
  for (int i = 0; i < 5; ++i) sequence.Round(nullptr, *verifier_, 0);
  const std::vector<int32_t> tokens = sequence.tokens;
  sequence.tokens.resize(8);
  sequence.verifier_cached = 6;
  sequence.Round(nullptr, *verifier_, 0);
  EXPECT_EQ(sequence.tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + 9));
}

TEST_F(WorkerSessionTest, AbortedCommandsReportTheActualStateAndCatchUpWorks) {
  StartVerifier();
  StartDraft(kTarget);
  const std::vector<int32_t> tokens = DecodeDirectly(20);
  TinySequence sequence(std::vector<int32_t>(tokens.begin(), tokens.begin() + 15), Greedy());
  sequence.prompt_length = kPrompt.size();
  sequence.draft_cached = 10;  // the router is mistaken, because the drafter is new
  const v1::ProposeResult refused = Propose(sequence.NextPropose(3));
  EXPECT_EQ(refused.state().code(), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(refused.state().cached_len(), 0);
  EXPECT_EQ(refused.state().prefix_hash(), kEmptyTokenHash);
  sequence.draft_cached = refused.state().cached_len();
  // The drafter catches up in parts and then drafts.
  v1::ProposeItem part = sequence.NextPropose(0);
  part.mutable_token_ids()->Truncate(9);
  EXPECT_EQ(Propose(part).state().cached_len(), 9);
  sequence.draft_cached = 9;
  const v1::ProposeResult proposed = Propose(sequence.NextPropose(3));
  EXPECT_EQ(proposed.state().cached_len(), 17) << "d1 and d2 were fed, d3 was not";
  EXPECT_THAT(proposed.draft_token_ids(),
              ::testing::ElementsAre(tokens[15], tokens[16], tokens[17]));
}

TEST_F(WorkerSessionTest, PrefillChunksMixWithDecoding) {
  StartVerifier();
  TinySequence alone(kPrompt, Greedy());
  for (int i = 0; i < 8; ++i) alone.Round(nullptr, *verifier_, 0);

  TinySequence decoding(kPrompt, Greedy());
  decoding.slot = 1;
  std::vector<int32_t> long_prompt(40);
  for (size_t i = 0; i < long_prompt.size(); ++i) long_prompt[i] = static_cast<int32_t>(i * 7 % 60);
  TinySequence prefilling(long_prompt, Greedy());
  prefilling.slot = 2;
  for (size_t filled = 0; filled < 40;) {
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() = decoding.NextVerify({});
    v1::VerifyItem& chunk = *command.mutable_verify()->add_items();
    chunk = prefilling.NextVerify({});
    const size_t size = std::min<size_t>(7, 40 - filled);
    chunk.mutable_token_ids()->Truncate(static_cast<int>(size));
    filled += size;
    chunk.set_sample(filled == 40);
    const v1::VerifierReply reply = verifier_->Call(command);
    decoding.Commit({}, reply.verify().results(0));
    if (filled < 40) {
      EXPECT_EQ(reply.verify().results(1).state().cached_len(), filled);
      prefilling.verifier_cached = filled;
    } else {
      prefilling.Commit({}, reply.verify().results(1));
    }
    EXPECT_GT(reply.verify().compute_seconds(), 0);
  }
  EXPECT_EQ(decoding.tokens, std::vector<int32_t>(alone.tokens.begin(),
                                                  alone.tokens.begin() + decoding.tokens.size()));

  TinySequence whole(long_prompt, Greedy());
  whole.epoch = 2;
  whole.verifier_number = alone.verifier_number;
  v1::VerifyItem item = whole.NextVerify({});
  *item.mutable_open() = ToSlotOpen(Greedy(), 40);
  EXPECT_EQ(Verify(item).next_token_id(), prefilling.tokens.back());
}

TEST_F(WorkerSessionTest, BadVerifyItemsAreRefusedAndTheirNeighborsAreNot) {
  StartVerifier();
  TinySequence neighbor(kPrompt, Greedy());
  TinySequence victim(kPrompt, Greedy());
  victim.slot = 1;
  neighbor.Round(nullptr, *verifier_, 0);
  victim.Round(nullptr, *verifier_, 0);
  const auto expect_refused = [&](const char* what, v1::WorkerCode code, auto change) {
    v1::VerifierCommand command;
    v1::VerifyItem& bad = *command.mutable_verify()->add_items();
    bad = victim.NextVerify({1, 2});
    change(bad);
    *command.mutable_verify()->add_items() = neighbor.NextVerify({});
    const v1::VerifierReply reply = verifier_->Call(command);
    const v1::SlotState& state = reply.verify().results(0).state();
    EXPECT_EQ(state.code(), code) << what << ": " << state.message();
    EXPECT_THAT(state.message(), HasSubstr(what));
    neighbor.Commit({}, reply.verify().results(1));
  };
  const auto kInvalid = v1::WORKER_CODE_INVALID_ARGUMENT;
  expect_refused("token_ids[0]", kInvalid, [](v1::VerifyItem& i) { i.set_token_ids(0, 64); });
  expect_refused("token_ids[0]", kInvalid, [](v1::VerifyItem& i) { i.set_token_ids(0, -1); });
  expect_refused("draft_token_ids[1]", kInvalid,
                 [](v1::VerifyItem& i) { i.set_draft_token_ids(1, 1 << 30); });
  expect_refused("token_ids: empty", kInvalid, [](v1::VerifyItem& i) { i.clear_token_ids(); });
  expect_refused("parents[1]", kInvalid, [](v1::VerifyItem& i) {
    i.add_parents(-1);
    i.add_parents(1);
  });
  expect_refused("parents", kInvalid, [](v1::VerifyItem& i) { i.add_parents(-1); });
  expect_refused("sample", kInvalid, [](v1::VerifyItem& i) { i.set_sample(false); });
  expect_refused("draft_token_ids: 17", kInvalid, [](v1::VerifyItem& i) {
    for (int n = 0; n < 15; ++n) i.add_draft_token_ids(1);
  });
  expect_refused("slots", kInvalid, [](v1::VerifyItem& i) { i.mutable_at()->set_slot(3); });
  expect_refused("command_number", kInvalid,
                 [](v1::VerifyItem& i) { i.mutable_at()->set_command_number(0); });
  victim.Round(nullptr, *verifier_, 0);
}

TEST_F(WorkerSessionTest, FullContextIsResourceExhausted) {
  StartVerifier();
  StartDraft(kOther);
  std::vector<int32_t> prompt(kContext - 2, 3);
  TinySequence sequence(prompt, Greedy());
  const v1::ProposeResult proposed = Propose(sequence.NextPropose(8));
  EXPECT_EQ(proposed.draft_token_ids_size(), 3) << "two are fed, the third is not";
  EXPECT_EQ(proposed.state().cached_len(), kContext);
  EXPECT_EQ(Verify(sequence.NextVerify({1, 2, 3})).state().code(),
            v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  sequence.verifier_number = 0;
  EXPECT_EQ(Verify(sequence.NextVerify({1, 2})).state().code(), v1::WORKER_CODE_OK);
  std::vector<int32_t> too_long(kContext + 1, 3);
  TinySequence other(too_long, Greedy());
  other.slot = 1;
  EXPECT_EQ(Propose(other.NextPropose(0)).state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(Verify(other.NextVerify({})).state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
}

TEST_F(WorkerSessionTest, NonFiniteTargetLogitsConcernOneSlotOnly) {
  StartVerifier(/*poisoned=*/true);
  TinySequence healthy(kPrompt, Greedy());
  TinySequence poisoned({5, 11, kPoison}, Greedy());
  poisoned.slot = 1;
  TinySequence unused({5, 11, 12}, Greedy());  // the poison is in a row that is not used
  unused.slot = 2;
  v1::VerifierCommand command;
  *command.mutable_verify()->add_items() = poisoned.NextVerify({});
  *command.mutable_verify()->add_items() = healthy.NextVerify({});
  *command.mutable_verify()->add_items() = unused.NextVerify({63, kPoison});
  const v1::VerifierReply reply = verifier_->Call(command);
  EXPECT_EQ(reply.verify().results(0).state().code(), v1::WORKER_CODE_NON_FINITE_LOGITS);
  EXPECT_EQ(reply.verify().results(0).state().cached_len(), 0);
  EXPECT_EQ(reply.verify().results(1).state().code(), v1::WORKER_CODE_OK);
  EXPECT_EQ(reply.verify().results(1).next_token_id(), DecodeDirectly(1).back());
  EXPECT_EQ(reply.verify().results(2).state().code(), v1::WORKER_CODE_OK);
  EXPECT_EQ(reply.verify().results(2).num_accepted(), 0);
}

TEST_F(WorkerSessionTest, FailedPassIsInternalAndLeavesTheSlotsAsTheyWere) {
  if (!testing::CanFailPasses()) GTEST_SKIP() << "no pass can be made to fail here";
  StartVerifier(/*poisoned=*/true);
  TinySequence sequence(kPrompt, Greedy());
  sequence.Round(nullptr, *verifier_, 0);
  const v1::VerifyItem good = sequence.NextVerify({});
  v1::VerifyItem bomb = good;
  bomb.add_token_ids(kBomb);
  const v1::VerifyResult failed = Verify(bomb);
  EXPECT_EQ(failed.state().code(), v1::WORKER_CODE_INTERNAL);
  EXPECT_EQ(failed.state().cached_len(), kPrompt.size());
  EXPECT_EQ(Verify(good).state().code(), v1::WORKER_CODE_INTERNAL) << "the same number is replayed";
  EXPECT_EQ(Verify(sequence.NextVerify({})).next_token_id(), DecodeDirectly(2).back());
}

TEST_F(WorkerSessionTest, NonFiniteDraftLogitsEndTheDraft) {
  StartDraft(kOther, /*poisoned=*/true);
  TinySequence poisoned({5, 11, kPoison}, Greedy());
  TinySequence healthy(kPrompt, Greedy());
  healthy.slot = 1;
  v1::DraftCommand command;
  *command.mutable_propose()->add_items() = poisoned.NextPropose(3);
  *command.mutable_propose()->add_items() = healthy.NextPropose(3);
  const v1::DraftReply reply = draft_->Call(command);
  EXPECT_EQ(reply.propose().results(0).state().code(), v1::WORKER_CODE_OK);
  EXPECT_EQ(reply.propose().results(0).state().cached_len(), 3);
  EXPECT_EQ(reply.propose().results(0).draft_token_ids_size(), 0);
  EXPECT_EQ(reply.propose().results(1).draft_token_ids_size(), 3);
}

TEST_F(WorkerSessionTest, AChainThatIsCutShortHasNoSiblings) {
  StartDraft(kOther, /*poisoned=*/true);
  SamplingParams to_poison = Greedy();
  to_poison.logit_bias = {{kPoison, 100.0f}};  // the first draft token; nothing follows it
  TinySequence poisoned(kPrompt, to_poison);
  poisoned.num_siblings = {2, 1};
  TinySequence at_the_end(std::vector<int32_t>(kContext - 2, 3), Greedy());
  at_the_end.slot = 1;
  at_the_end.num_siblings = {2, 1};
  TinySequence neighbor(kPrompt, Greedy());
  neighbor.slot = 2;
  neighbor.num_siblings = {2, 1};
  v1::DraftCommand command;
  for (TinySequence* sequence : {&poisoned, &at_the_end, &neighbor}) {
    *command.mutable_propose()->add_items() = sequence->NextPropose(4);
  }
  const v1::DraftReply reply = draft_->Call(command);
  const std::vector<int> sizes = {1, 3, 4 + 3};
  for (int i = 0; i < 3; ++i) {
    const v1::ProposeResult& result = reply.propose().results(i);
    EXPECT_EQ(result.draft_token_ids_size(), sizes[static_cast<size_t>(i)]);
    EXPECT_EQ(result.parents_size(), i == 2 ? 4 + 3 : 0);
  }
}

TEST_F(WorkerSessionTest, SlotsLeaveABatchWhenTheyHaveTheirTokens) {
  StartDraft(kOther);
  const std::vector<uint32_t> lengths = {1, 5, 3};
  const std::vector<std::vector<uint32_t>> num_siblings = {{2}, {0, 3, 1}, {}};
  const auto tokens_of = [](const v1::ProposeResult& result) {
    return std::vector<int32_t>(result.draft_token_ids().begin(), result.draft_token_ids().end());
  };
  std::vector<std::vector<int32_t>> alone;
  for (size_t slot = 0; slot < lengths.size(); ++slot) {
    TinySequence sequence(kPrompt, Greedy());
    sequence.epoch = ++epoch_;
    sequence.num_siblings = num_siblings[slot];
    OpenFirst(sequence);
    alone.push_back(tokens_of(Propose(sequence.NextPropose(lengths[slot]))));
    draft_number_ = sequence.draft_number;
  }
  EXPECT_EQ(alone[0].size(), 3u);
  EXPECT_EQ(alone[1].size(), 9u);
  v1::DraftCommand command;
  for (uint32_t slot = 0; slot < lengths.size(); ++slot) {
    TinySequence sequence(kPrompt, Greedy());
    sequence.slot = slot;
    sequence.epoch = epoch_ + 1;
    sequence.draft_number = draft_number_;
    sequence.num_siblings = num_siblings[slot];
    v1::ProposeItem& item = *command.mutable_propose()->add_items();
    item = sequence.NextPropose(lengths[slot]);
    *item.mutable_open() = ToSlotOpen(Greedy(), sequence.prompt_length);
  }
  const v1::DraftReply reply = draft_->Call(command);
  for (int slot = 0; slot < 3; ++slot) {
    const v1::ProposeResult& result = reply.propose().results(slot);
    const auto index = static_cast<size_t>(slot);
    EXPECT_EQ(tokens_of(result), alone[index]);
    EXPECT_EQ(result.state().cached_len(), kPrompt.size() + lengths[index] - 1);
  }
}

TEST_F(WorkerSessionTest, BadProposeItemsAreRefusedAndTheirNeighborsAreNot) {
  StartDraft(kOther);
  TinySequence neighbor(kPrompt, Greedy());
  TinySequence victim(kPrompt, Sampled(false));
  victim.slot = 1;
  const auto expect_refused = [&](const char* what, v1::WorkerCode code, auto change) {
    v1::DraftCommand command;
    v1::ProposeItem& bad = *command.mutable_propose()->add_items();
    victim.draft_number = 0;
    bad = victim.NextPropose(2);
    bad.mutable_ring()->set_ring_epoch(1);
    change(bad);
    *command.mutable_propose()->add_items() = neighbor.NextPropose(1);
    const v1::DraftReply reply = draft_->Call(command);
    const v1::SlotState& state = reply.propose().results(0).state();
    EXPECT_EQ(state.code(), code) << what << ": " << state.message();
    EXPECT_THAT(state.message(), HasSubstr(what));
    EXPECT_EQ(reply.propose().results(1).draft_token_ids_size(), 1);
  };
  const auto kInvalid = v1::WORKER_CODE_INVALID_ARGUMENT;
  expect_refused("token_ids[2]", kInvalid, [](v1::ProposeItem& i) { i.set_token_ids(2, 64); });
  expect_refused("token_ids: empty", kInvalid, [](v1::ProposeItem& i) { i.clear_token_ids(); });
  expect_refused("draft_length", kInvalid, [](v1::ProposeItem& i) { i.set_draft_length(17); });
  expect_refused("draft_length", kInvalid, [](v1::ProposeItem& i) { i.set_draft_length(~0u); });
  expect_refused("ring: missing", kInvalid, [](v1::ProposeItem& i) { i.clear_ring(); });
  expect_refused("num_siblings: got 4, want at most 3", kInvalid,
                 [](v1::ProposeItem& i) { i.add_num_siblings(4); });
  expect_refused("num_siblings: 3 positions of a chain of 2", kInvalid,
                 [](v1::ProposeItem& i) { i.mutable_num_siblings()->Resize(3, 1); });
  expect_refused("ring: none is open", v1::WORKER_CODE_FAILED_PRECONDITION,
                 [](v1::ProposeItem&) {});
}

// Rounds of two slots at once, whose texts repeat, with the answers of the drafter.
struct GuessedRounds {
  std::vector<std::string> answers;
  uint64_t num_guessed = 0;
  uint64_t num_right = 0;
};

TEST_F(WorkerSessionTest, GuessesChangeNoDraft) {
  SamplingParams penalized = Sampled(true);
  penalized.presence_penalty = 0.4f;
  SamplingParams flat = Greedy();
  flat.temperature = 0.05f;
  flat.reproducible = true;
  flat.seed = 3;
  for (const SamplingParams& params : {Greedy(), Sampled(true), penalized, flat}) {
    const auto run = [&](bool guesses) {
      StartDraft(kOther, false, 0, guesses);
      GuessedRounds rounds;
      std::vector<TinySequence> sequences;
      for (uint32_t slot = 0; slot < 2; ++slot) {
        std::vector<int32_t> prompt = kPrompt;
        for (int i = 0; i < 3; ++i) prompt.insert(prompt.end(), kPrompt.begin(), kPrompt.end());
        prompt.push_back(static_cast<int32_t>(slot + 5));
        sequences.emplace_back(prompt, params);
        sequences.back().slot = slot;
        if (slot == 1) sequences.back().num_siblings = {1, 0, 2};
      }
      for (int round = 0; round < 12; ++round) {
        v1::DraftCommand command;
        for (TinySequence& sequence : sequences) {
          *command.mutable_propose()->add_items() =
              sequence.NextPropose(3 + static_cast<uint32_t>(round) % 5);
        }
        v1::ProposeReply reply = draft_->Call(command).propose();
        EXPECT_EQ(reply.results_size(), 2);
        for (int i = 0; i < reply.results_size(); ++i) {
          EXPECT_EQ(reply.results(i).state().code(), v1::WORKER_CODE_OK);
          rounds.answers.push_back(reply.results(i).SerializeAsString());
          // All but the last token of the chain are accepted.
          TinySequence& sequence = sequences[static_cast<size_t>(i)];
          sequence.draft_cached = sequence.tokens.size();
          const auto& drafts = reply.results(i).draft_token_ids();
          const int chain = 3 + round % 5;
          sequence.tokens.insert(sequence.tokens.end(), drafts.begin(),
                                 drafts.begin() + std::min(chain - 1, drafts.size()));
          sequence.draft_cached = sequence.tokens.size();
          sequence.tokens.push_back(kPrompt[static_cast<size_t>(round) % kPrompt.size()]);
        }
      }
      draft_.reset();
      draft_server_.reset();  // its thread updates the counts
      rounds.num_guessed = draft_model_->stats().num_guessed;
      rounds.num_right = draft_model_->stats().num_guessed_right;
      return rounds;
    };
    const GuessedRounds plain = run(false);
    const GuessedRounds guessed = run(true);
    EXPECT_EQ(guessed.answers, plain.answers);
    EXPECT_EQ(plain.num_guessed, 0u);
    if (testing::BackendUnderTest() == "cuda") continue;  // it does not guess
    EXPECT_GT(guessed.num_guessed, guessed.num_right);
    if (!params.greedy()) continue;
    EXPECT_GT(guessed.num_right, 0u);
  }
}

// The time of a draft would depend on draws that nobody judges.
TEST_F(WorkerSessionTest, NothingIsGuessedForPlainSampling) {
  if (testing::BackendUnderTest() == "cuda") return;  // it does not guess
  for (const bool reproducible : {true, false}) {
    SamplingParams params = Sampled(reproducible);
    params.temperature = 0.05f;
    StartDraft(kOther, false, 0, /*guesses=*/true);
    std::vector<int32_t> prompt = kPrompt;
    for (int i = 0; i < 3; ++i) prompt.insert(prompt.end(), kPrompt.begin(), kPrompt.end());
    TinySequence sequence(prompt, params);
    if (!reproducible) {
      StartVerifier();
      sequence.ring_epoch =
          testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
    }
    v1::DraftCommand command;
    *command.mutable_propose()->add_items() = sequence.NextPropose(6);
    const v1::ProposeReply reply = draft_->Call(command).propose();
    ASSERT_EQ(reply.results_size(), 1);
    EXPECT_EQ(reply.results(0).draft_token_ids_size(), 6);
    verifier_.reset();
    draft_.reset();
    draft_server_.reset();  // its thread updates the counts
    EXPECT_EQ(draft_model_->stats().num_guessed > 0, reproducible);
  }
}

TEST_F(WorkerSessionTest, ATreeIsAtMostAsLargeAsTheSessionSays) {
  StartDraft(kOther);
  DraftClient client(draft_server_->address());
  v1::DraftCommand attach;
  *attach.mutable_attach() = testing::AttachWith(kSlots);
  attach.mutable_attach()->set_max_tree_nodes(4);
  ASSERT_TRUE(client.Call(attach).has_attach());
  TinySequence sequence(kPrompt, Greedy());
  const auto state_with = [&](uint32_t num_siblings) {
    v1::DraftCommand command;
    sequence.num_siblings = {num_siblings};
    *command.mutable_propose()->add_items() = sequence.NextPropose(3);
    return client.Call(command).propose().results(0).state();
  };
  EXPECT_EQ(state_with(1).code(), v1::WORKER_CODE_OK);
  sequence.draft_cached = kPrompt.size();
  sequence.tokens.push_back(1);
  const v1::SlotState refused = state_with(2);
  EXPECT_EQ(refused.code(), v1::WORKER_CODE_INVALID_ARGUMENT);
  EXPECT_EQ(refused.message(),
            "slot 0: num_siblings: a tree of 5 tokens, the session was attached with at most 4");
}

TEST_F(WorkerSessionTest, AVerifierJudgesNoTreeLargerThanTheSessionSays) {
  StartVerifier();
  verifier_.reset();  // a worker has one router here
  VerifierClient client(verifier_server_->address());
  v1::VerifierCommand attach;
  *attach.mutable_attach() = testing::AttachWith(kSlots, /*max_draft_length=*/3);
  attach.mutable_attach()->set_max_tree_nodes(4);
  ASSERT_TRUE(client.Call(attach).has_attach());
  TinySequence sequence(kPrompt, Greedy());
  const auto verdict_about = [&](const std::vector<int32_t>& parents) {
    v1::VerifierCommand command;
    v1::VerifyItem& item = *command.mutable_verify()->add_items();
    item = sequence.NextVerify(std::vector<int32_t>(parents.size(), 1));
    item.mutable_parents()->Add(parents.begin(), parents.end());
    return client.Call(command).verify().results(0);
  };
  // A refused command leaves the slot as it was, so the next one opens it anew.
  const auto expect_refused = [&](const std::vector<int32_t>& parents, const char* message) {
    const v1::SlotState refused = verdict_about(parents).state();
    EXPECT_EQ(refused.code(), v1::WORKER_CODE_INVALID_ARGUMENT);
    EXPECT_EQ(refused.message(), message);
    sequence.verifier_number = 0;
  };
  expect_refused({-1, -1, -1, -1, -1},
                 "slot 0: draft_token_ids: 5 of a tree, the session was attached with at most 4");
  expect_refused({-1, 0, 1, 2},
                 "slot 0: parents: a path of 4 draft tokens, the session was attached with at most "
                 "3");
  const v1::VerifyResult judged = verdict_about({-1, 0, 1, 0});
  EXPECT_EQ(judged.state().code(), v1::WORKER_CODE_OK) << judged.state().message();
  EXPECT_EQ(judged.next_token_id(), DecodeDirectly(1).back());
}

// What a drafter draws, and how its draft is judged, for some seeds.
struct DrawnAndJudged {
  std::vector<std::vector<int32_t>> drafts;
  std::vector<uint32_t> num_accepted;
};

TEST_F(WorkerSessionTest, EachDraftModelHasKeysOfItsOwn) {
  StartVerifier();
  const auto run = [&](uint32_t number_of_drafter, uint32_t number_of_ring) {
    StartDraft(kOther, false, number_of_drafter);
    draft_number_ = 0;
    const uint64_t ring = testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM,
                                             kVocabularySize, 4, number_of_ring);
    DrawnAndJudged all;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      SamplingParams params;
      params.temperature = 3;  // the models agree more often
      params.seed = seed;
      TinySequence sequence(kPrompt, params);
      sequence.epoch = ++epoch_;
      OpenFirst(sequence);
      sequence.ring_epoch = ring;
      sequence.ring_sequence = ring_sequence_;
      const v1::ProposeResult proposed = Propose(sequence.NextPropose(1));
      all.drafts.push_back({proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()});
      const v1::VerifyResult verified = Verify(sequence.NextVerify(all.drafts.back()));
      EXPECT_EQ(verified.ring_error(), "");
      all.num_accepted.push_back(verified.num_accepted());
      draft_number_ = sequence.draft_number;
      verifier_number_ = sequence.verifier_number;
      ring_sequence_ = sequence.ring_sequence;
    }
    return all;
  };
  const DrawnAndJudged first = run(0, 0);
  EXPECT_EQ(run(0, 0).drafts, first.drafts);
  EXPECT_EQ(run(0, 0).num_accepted, first.num_accepted);
  EXPECT_NE(run(1, 1).drafts, first.drafts);
  const DrawnAndJudged judged_otherwise = run(0, 1);
  EXPECT_EQ(judged_otherwise.drafts, first.drafts) << "the ring makes no difference to the draws";
  EXPECT_NE(judged_otherwise.num_accepted, first.num_accepted);
}

TEST_F(WorkerSessionTest, RingsOfTwoDraftModelsStandBesideEachOther) {
  StartVerifier();
  StartDraft(kOther);
  const uint64_t first =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  DraftClient second(draft_server_->address());
  testing::Attach<DraftClient, v1::DraftCommand>(second, kSlots, 1);
  const uint64_t other =
      testing::SetUpRing(second, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize, 4, 1);
  EXPECT_NE(first, other);
  num_drafted_ = 0;
  Generate(Sampled(false), 4, NumTokens(20), first);  // expects no error of the ring
  EXPECT_GT(num_drafted_, 0u);
  v1::VerifierCommand create;
  create.mutable_create_ring()->set_transport(v1::RING_TRANSPORT_INLINE);
  create.mutable_create_ring()->set_draft_model_number(kMaxDraftModels);
  EXPECT_THAT(verifier_->Call(create).error().message(),
              HasSubstr("draft_model_number is 4, want 0 … 3"));
}

TEST_F(WorkerSessionTest, ABlockThatFailsItsChecksIsDroppedAndTheRoundDecodesPlainly) {
  StartVerifier();
  StartDraft(kOther);
  const uint64_t ring =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  constexpr int32_t kImpossible = 63;
  SamplingParams params = Sampled(false);
  params.min_tokens = 50;  // until then the drafter cannot draw the token
  params.held_back_token_ids = {kImpossible};
  const auto round_with = [&](auto change) {
    TinySequence sequence(kPrompt, params);
    sequence.epoch = ++epoch_;
    OpenFirst(sequence);
    sequence.ring_epoch = ring;
    sequence.ring_sequence = ring_sequence_;
    const v1::ProposeResult proposed = Propose(sequence.NextPropose(3));
    EXPECT_EQ(proposed.draft_token_ids_size(), 3);
    v1::VerifyItem item =
        sequence.NextVerify({proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()});
    change(item);
    draft_number_ = sequence.draft_number;
    verifier_number_ = sequence.verifier_number;
    ring_sequence_ = sequence.ring_sequence;
    return Verify(item);
  };
  const v1::VerifyResult plain = round_with([&](v1::VerifyItem& item) {
    item.clear_draft_token_ids();
    item.clear_ring();
  });
  EXPECT_EQ(plain.ring_error(), "");
  const std::vector<std::pair<const char*, std::function<void(v1::VerifyItem&)>>> faults = {
      {"sequence",
       [](v1::VerifyItem& i) { i.mutable_ring()->set_sequence(i.ring().sequence() + 1); }},
      {"epoch",
       [](v1::VerifyItem& i) { i.mutable_ring()->set_ring_epoch(i.ring().ring_epoch() + 1); }},
      {"want less than", [](v1::VerifyItem& i) { i.mutable_ring()->set_entry(99); }},
      {"rows", [](v1::VerifyItem& i) { i.mutable_draft_token_ids()->Truncate(2); }},
      {"is no distribution that gives",
       [&](v1::VerifyItem& i) { i.set_draft_token_ids(1, kImpossible); }},
  };
  for (const auto& [what, fault] : faults) {
    const v1::VerifyResult result = round_with(fault);
    EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
    EXPECT_THAT(result.ring_error(), HasSubstr(what));
    EXPECT_EQ(result.num_accepted(), 0);
    EXPECT_EQ(result.next_token_id(), plain.next_token_id()) << what;
    EXPECT_EQ(result.state().cached_len(), kPrompt.size());
  }
  EXPECT_EQ(round_with([](v1::VerifyItem&) {}).ring_error(), "") << "the ring still works";
  verifier_.reset();
  verifier_server_.reset();  // its thread updates the counts
  const auto& errors = verifier_model_->stats().ring_errors;
  EXPECT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors.at({v1::RING_TRANSPORT_SHM, RingError::kFailedPrecondition}), 3u);
  EXPECT_EQ(errors.at({v1::RING_TRANSPORT_SHM, RingError::kInvalidArgument}), 1u);
  EXPECT_EQ(errors.at({v1::RING_TRANSPORT_SHM, RingError::kBadRows}), 1u);
}

TEST_F(WorkerSessionTest, WrongNonceIsNotConfirmed) {
  StartVerifier();
  v1::VerifierCommand create;
  create.mutable_create_ring()->set_transport(v1::RING_TRANSPORT_SHM);
  create.mutable_create_ring()->set_entries(1);
  create.mutable_create_ring()->set_rows_per_entry(1);
  create.mutable_create_ring()->set_vocabulary_size(kVocabularySize);
  const v1::VerifierReply created = verifier_->Call(create);
  v1::VerifierCommand confirm;
  confirm.mutable_confirm_ring()->set_ring_epoch(created.create_ring().ring_epoch());
  confirm.mutable_confirm_ring()->set_nonce(1);
  EXPECT_EQ(verifier_->Call(confirm).error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  confirm.mutable_confirm_ring()->set_ring_epoch(1);
  EXPECT_EQ(verifier_->Call(confirm).error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  create.mutable_create_ring()->set_vocabulary_size(65);
  EXPECT_EQ(verifier_->Call(create).error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  create.mutable_create_ring()->set_transport(v1::RING_TRANSPORT_CUDA_IPC);
  EXPECT_EQ(verifier_->Call(create).error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  create.mutable_create_ring()->set_transport(v1::RING_TRANSPORT_SHM);
  create.mutable_create_ring()->set_vocabulary_size(kVocabularySize);
  create.mutable_create_ring()->set_entries(0);
  EXPECT_EQ(verifier_->Call(create).error().code(), v1::WORKER_CODE_INVALID_ARGUMENT);
}

TEST_F(WorkerSessionTest, SessionsShareTheSlotsAndGiveThemBack) {
  StartVerifier();
  // The first router takes all slots. Each router has its own slot ids.
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    TinySequence sequence(kPrompt, Greedy());
    sequence.slot = slot;
    sequence.Round(nullptr, *verifier_, 0);
  }
  VerifierClient second(verifier_server_->address());
  const v1::AttachReply attached =
      testing::Attach<VerifierClient, v1::VerifierCommand>(second, kSlots);
  EXPECT_EQ(attached.max_slots(), kSlots);
  const auto try_second = [&second] {
    TinySequence sequence(kPrompt, Greedy());
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() = sequence.NextVerify({});
    return second.Call(command).verify().results(0);
  };
  const v1::VerifyResult refused = try_second();
  EXPECT_EQ(refused.state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.state().slot_epoch(), 0) << "the epoch was not begun: `open` is needed again";
  verifier_.reset();  // the first router is gone
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  v1::VerifyResult result = try_second();
  while (result.state().code() != v1::WORKER_CODE_OK &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
    result = try_second();
  }
  EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
  EXPECT_EQ(result.next_token_id(), DecodeDirectly(1).back());
}

TEST_F(WorkerSessionTest, ASessionEndsWellWhenItsRouterSendsNoMore) {
  StartVerifier();
  const auto stub =
      v1::VerifierWorker::NewStub(ConnectWorker(*Address::Parse(verifier_server_->address())));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub->Session(&context);
  EXPECT_TRUE(stream->WritesDone());
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(WorkerSessionTest, AttachDescribesTheWorker) {
  StartVerifier();
  VerifierClient client(verifier_server_->address());
  const v1::AttachReply reply = testing::Attach<VerifierClient, v1::VerifierCommand>(client, 1);
  EXPECT_EQ(reply.protocol_version(), kProtocolVersion);
  EXPECT_EQ(reply.model(), "target");
  EXPECT_EQ(reply.backend(), testing::BackendUnderTest());
  EXPECT_FALSE(reply.numerics_id().empty());
  EXPECT_EQ(reply.vocabulary_size(), kVocabularySize);
  EXPECT_EQ(reply.vocabulary_fingerprint().size(), 32);
  EXPECT_EQ(reply.max_context_tokens(), kContext);
  EXPECT_FALSE(reply.context_limited_by_pages());
  EXPECT_EQ(reply.page_tokens(), 64);
  EXPECT_EQ(reply.num_pages(), kSlots * 2) << "the pages that all slots can fill";
  EXPECT_EQ(reply.kv_cache_bytes(),
            kSlots * HostKvMemory::Bytes(verifier_model_->model().description(), kContext));
  EXPECT_GT(reply.weight_bytes(), 0);
  std::vector<int> transports = {v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE};
  const bool on_gpu = testing::BackendUnderTest() == "cuda";
  if (on_gpu) transports.insert(transports.begin(), v1::RING_TRANSPORT_CUDA_IPC);
  EXPECT_THAT(reply.transports(), ::testing::ElementsAreArray(transports));
  EXPECT_EQ(reply.device_uuid().empty(), !on_gpu);
  v1::VerifierCommand again;
  *again.mutable_attach() = testing::AttachWith(1);
  EXPECT_EQ(client.Call(again).error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
}

TEST_F(WorkerSessionTest, OtherProtocolVersionEndsTheSession) {
  StartVerifier();
  VerifierClient client(verifier_server_->address());
  v1::VerifierCommand command;
  *command.mutable_attach() = testing::AttachWith(1);
  command.mutable_attach()->set_protocol_version(kProtocolVersion + 1);
  const v1::VerifierReply reply = client.Call(command);
  EXPECT_EQ(reply.id(), client.last_id());
  EXPECT_EQ(reply.error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  EXPECT_EQ(client.WaitClosed().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(WorkerSessionTest, CommandsBeforeAttachEndTheSession) {
  StartVerifier();
  StartDraft(kOther);
  VerifierClient verifier(verifier_server_->address());
  EXPECT_EQ(verifier.Call(v1::VerifierCommand()).error().code(),
            v1::WORKER_CODE_FAILED_PRECONDITION);
  EXPECT_EQ(verifier.WaitClosed().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  DraftClient draft(draft_server_->address());
  v1::DraftCommand propose;
  propose.mutable_propose();
  EXPECT_EQ(draft.Call(propose).error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  EXPECT_EQ(draft.WaitClosed().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(WorkerSessionTest, EmptyCommandsAreInvalidAndTheSessionContinues) {
  StartVerifier();
  EXPECT_EQ(verifier_->Call(v1::VerifierCommand()).error().code(),
            v1::WORKER_CODE_INVALID_ARGUMENT);
  TinySequence sequence(kPrompt, Greedy());
  sequence.Round(nullptr, *verifier_, 0);
}

TEST_F(WorkerSessionTest, VocabularyIsReadEntryByEntry) {
  StartDraft(kOther);
  v1::DraftCommand command;
  command.mutable_read_vocabulary();
  draft_->Send(command);
  std::vector<std::string> entries;
  v1::DraftReply reply;
  do {
    reply = draft_->Receive();
    ASSERT_EQ(reply.vocabulary().first_id(), entries.size());
    entries.insert(entries.end(), reply.vocabulary().entries().begin(),
                   reply.vocabulary().entries().end());
  } while (!reply.vocabulary().last());
  const Tokenizer& tokenizer = draft_model_->tokenizer();
  ASSERT_EQ(entries.size(), tokenizer.num_entries());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i], std::string(tokenizer.Entry(static_cast<int32_t>(i))));
  }
}

TEST_F(WorkerSessionTest, EveryCommittedTokenHasLogprobs) {
  StartVerifier();
  StartDraft(kTarget);
  SamplingParams params = Greedy();
  params.num_logprobs = 2;
  TinySequence sequence(kPrompt, params);
  const v1::ProposeResult proposed = Propose(sequence.NextPropose(3));
  const v1::VerifyResult verified = Verify(
      sequence.NextVerify({proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()}));
  ASSERT_EQ(verified.num_accepted(), 3);
  ASSERT_EQ(verified.logprobs_size(), 4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(verified.logprobs(i).top_size(), 2);
    const int32_t token = i < 3 ? proposed.draft_token_ids(i) : verified.next_token_id();
    EXPECT_EQ(verified.logprobs(i).top(0).token_id(), token) << "greedy takes the largest";
    EXPECT_EQ(verified.logprobs(i).top(0).logprob(), verified.logprobs(i).logprob());
    EXPECT_LE(verified.logprobs(i).logprob(), 0);
  }
}

// Asks for the log-probabilities of the first `num_rows` rows' next tokens. `following`: the token
// after the item's, if all of its rows are asked for.
void Ask(uint32_t num_rows, std::optional<int32_t> following, v1::VerifyItem& item) {
  item.mutable_scores()->set_num_rows(num_rows);
  if (following.has_value()) item.mutable_scores()->set_following_token_id(*following);
}

void ExpectSame(const v1::TokenLogprobs& got, const v1::TokenLogprobs& want) {
  if (testing::BackendUnderTest() == "cpu") {
    EXPECT_EQ(got.SerializeAsString(), want.SerializeAsString());
    return;
  }
  // A GPU sums the row up in another order than the host, which scores prompts.
  EXPECT_NEAR(got.logprob(), want.logprob(), 1e-5);
  EXPECT_EQ(got.top_size(), want.top_size());
}

// Teacher forcing: the output of one request is a part of the prompt of another one.
TEST_F(WorkerSessionTest, TokensOfAPromptHaveTheLogprobsThatTheyHadWhenTheyWereDrawn) {
  StartVerifier();
  SamplingParams params = Greedy();
  params.num_logprobs = 3;
  TinySequence drawn(kPrompt, params);
  std::vector<v1::TokenLogprobs> expected;
  for (size_t i = 0; i < NumTokens(40, 4); ++i) {
    const v1::VerifyResult result = Verify(drawn.NextVerify({}));
    ASSERT_EQ(result.logprobs_size(), 1) << result.state().message();
    expected.push_back(result.logprobs(0));
    drawn.Commit({}, result);
  }

  params.num_prompt_logprobs = 3;
  TinySequence scored(drawn.tokens, params);
  scored.slot = 1;
  const std::vector<int32_t> tokens = drawn.tokens;
  v1::VerifyItem item = scored.NextVerify({});
  item.mutable_token_ids()->Truncate(kPrompt.size() + 3);
  item.set_sample(false);
  Ask(kPrompt.size() + 3, tokens[kPrompt.size() + 3], item);
  const v1::VerifyResult first = Verify(item);
  ASSERT_EQ(first.prompt_logprobs_size(), item.token_ids_size()) << first.state().message();
  EXPECT_EQ(Verify(item).SerializeAsString(), first.SerializeAsString()) << "a repetition";
  scored.verifier_cached = kPrompt.size() + 3;
  item = scored.NextVerify({});
  Ask(static_cast<uint32_t>(item.token_ids_size()) - 1, std::nullopt, item);
  const v1::VerifyResult rest = Verify(item);
  ASSERT_EQ(rest.prompt_logprobs_size(), item.token_ids_size() - 1) << rest.state().message();

  std::vector<v1::TokenLogprobs> got(first.prompt_logprobs().begin(),
                                     first.prompt_logprobs().end());
  got.insert(got.end(), rest.prompt_logprobs().begin(), rest.prompt_logprobs().end());
  ASSERT_EQ(got.size(), tokens.size() - 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    ExpectSame(got[kPrompt.size() - 1 + i], expected[i]);
  }
  // The token after the prompt is drawn as ever.
  const v1::VerifyResult next = Verify(drawn.NextVerify({}));
  EXPECT_EQ(rest.next_token_id(), next.next_token_id());
  EXPECT_EQ(rest.logprobs(0).SerializeAsString(), next.logprobs(0).SerializeAsString());
}

TEST_F(WorkerSessionTest, AScoredRowThatIsNotFiniteEndsItsSlotAlone) {
  StartVerifier(/*poisoned=*/true);
  SamplingParams params = Greedy();
  params.num_prompt_logprobs = 0;
  TinySequence poisoned({5, 11, kPoison, 12}, params);
  TinySequence healthy({5, 11, 12}, params);
  healthy.slot = 1;
  v1::VerifierCommand command;
  *command.mutable_verify()->add_items() = poisoned.NextVerify({});
  *command.mutable_verify()->add_items() = healthy.NextVerify({});
  Ask(3, std::nullopt, *command.mutable_verify()->mutable_items(0));
  Ask(2, std::nullopt, *command.mutable_verify()->mutable_items(1));
  const v1::VerifierReply reply = verifier_->Call(command);
  EXPECT_EQ(reply.verify().results(0).state().code(), v1::WORKER_CODE_NON_FINITE_LOGITS);
  EXPECT_EQ(reply.verify().results(0).state().cached_len(), 0);
  EXPECT_EQ(reply.verify().results(1).state().code(), v1::WORKER_CODE_OK);
  EXPECT_EQ(reply.verify().results(1).prompt_logprobs_size(), 2);
  EXPECT_EQ(reply.verify().results(1).prompt_logprobs(0).top_size(), 0);
}

TEST_F(WorkerSessionTest, ScoresThatCannotBeAreRefused) {
  StartVerifier();
  SamplingParams params = Greedy();
  params.num_prompt_logprobs = 1;
  TinySequence sequence(kPrompt, params);
  TinySequence unscored(kPrompt, Greedy());
  unscored.slot = 1;
  const auto expect_refused = [&](const char* what, TinySequence& of, auto change) {
    v1::VerifyItem item = of.NextVerify({});
    *item.mutable_open() = ToSlotOpen(of.params, of.prompt_length);
    change(item);
    const v1::SlotState state = Verify(item).state();
    EXPECT_EQ(state.code(), v1::WORKER_CODE_INVALID_ARGUMENT) << what << ": " << state.message();
    EXPECT_THAT(state.message(), HasSubstr(what));
  };
  expect_refused("scores: given", unscored, [](v1::VerifyItem& i) { Ask(1, std::nullopt, i); });
  expect_refused("scores: given", sequence, [](v1::VerifyItem& i) {
    i.add_draft_token_ids(1);
    Ask(1, std::nullopt, i);
  });
  expect_refused("num_rows: got 0", sequence, [](v1::VerifyItem& i) { i.mutable_scores(); });
  expect_refused("num_rows: got 6", sequence, [](v1::VerifyItem& i) { Ask(6, 1, i); });
  expect_refused("want 1 or more of at most 64", sequence, [](v1::VerifyItem& i) {
    for (int n = 0; n < 60; ++n) i.add_token_ids(1);
    Ask(1, std::nullopt, i);
  });
  expect_refused("following_token_id", sequence, [](v1::VerifyItem& i) { Ask(4, 1, i); });
  expect_refused("following_token_id", sequence,
                 [](v1::VerifyItem& i) { Ask(5, std::nullopt, i); });
  expect_refused("following_token_id", sequence, [](v1::VerifyItem& i) { Ask(5, 64, i); });
}

TEST_F(WorkerSessionTest, EveryTokenThatPlainSamplingDrawsHasAnAuditSample) {
  StartVerifier();
  StartDraft(kTarget);
  const uint64_t ring =
      testing::SetUpRing(*draft_, *verifier_, v1::RING_TRANSPORT_SHM, kVocabularySize);
  for (const bool reproducible : {false, true}) {
    SamplingParams params;
    params.seed = 5;
    params.reproducible = reproducible;
    params.audit = true;
    TinySequence sequence(kPrompt, params);
    sequence.slot = reproducible ? 1 : 0;
    if (!reproducible) sequence.ring_epoch = ring;
    const v1::ProposeResult proposed = Propose(sequence.NextPropose(3));
    const v1::VerifyResult verified = Verify(sequence.NextVerify(
        {proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()}));
    ASSERT_EQ(verified.state().code(), v1::WORKER_CODE_OK);
    if (reproducible) {
      EXPECT_EQ(verified.audit_size(), 0);
      continue;
    }
    ASSERT_EQ(verified.audit_size(), static_cast<int>(verified.num_accepted()) + 1);
    for (const v1::AuditSample& sample : verified.audit()) {
      EXPECT_GE(sample.uniform(), 0);
      EXPECT_LT(sample.uniform(), 1);
      EXPECT_LT(std::abs(sample.draft_mode_excess()), 1);
    }
    EXPECT_NE(verified.audit(0).draft_mode_excess(), 0) << "the first token was drafted";
  }
}

TEST_F(WorkerSessionTest, HealthServiceSaysServing) {
  StartVerifier();
  grpc::GenericStub stub(ConnectWorker(*Address::Parse(verifier_server_->address())));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const grpc::Slice empty_message("");  // a ByteBuffer without a slice would not be a message
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                    grpc::ByteBuffer(&empty_message, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  ASSERT_TRUE(status.ok()) << status.error_message();
  grpc::Slice slice;
  ASSERT_TRUE(response.DumpToSingleSlice(&slice).ok());
  EXPECT_EQ(std::string(slice.begin(), slice.end()), "\x08\x01") << "status: SERVING";
}

}  // namespace
}  // namespace tandem
