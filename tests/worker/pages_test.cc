// Tests pages and the prefix cache through the commands of both workers' sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/token_hash.h"
#include "kernels/sampling/transform/transform.h"
#include "services/draft/drafter_session.h"
#include "services/verifier/verifier_session.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/model_doubles.h"
#include "tests/worker/slots/to_slot_open.h"
#include "tests/worker/tiny_router.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::ToSlotOpen;

constexpr int32_t kPoison = 9;
constexpr int32_t kBomb = 10;
constexpr size_t kVocabularySize = 64;
constexpr size_t kMaxContext = 384;

using Tokens = std::vector<int32_t>;

// Returns tokens without a repeated sequence. None of them is special to PoisonedModel.
Tokens Text(size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens(length);
  for (int32_t& token : tokens) token = 11 + static_cast<int32_t>(random() % 50);
  return tokens;
}

Tokens Joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  params.num_logprobs = 3;
  return params;
}

SamplingParams Sampled() {
  SamplingParams params;
  params.seed = 1;
  return params;
}

// A worker, and a session without a stream.
template <typename Session, typename Command, typename Reply>
class DirectSession {
 public:
  template <typename... Args>
  explicit DirectSession(uint32_t max_slots, Args... args) : session_(args...) {
    Command command;
    *command.mutable_attach() = testing::AttachWith(max_slots);
    EXPECT_TRUE(Call(command).has_attach());
  }
  Reply Call(const Command& command) {
    Reply reply;
    EXPECT_TRUE(session_.Handle(command, [&](Reply answer) { reply = std::move(answer); }).ok());
    return reply;
  }

 private:
  Session session_;
};
using DirectVerifier = DirectSession<VerifierSession, v1::VerifierCommand, v1::VerifierReply>;
using DirectDraft = DirectSession<DrafterSession, v1::DraftCommand, v1::DraftReply>;

class PagesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TempDir();
    testing::RandomModelSpec spec;
    // With tied embeddings, the model would repeat the last token again and again.
    spec.tied_embeddings = false;
    testing::WriteRandomModel(folder_->path(), spec);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  // Starts a worker whose pool has `num_pages` pages.
  void Start(size_t num_pages, bool poisoned = false) {
    draft_.reset();
    verifier_.reset();
    auto threads = std::make_unique<ThreadPool>(1);
    std::unique_ptr<LanguageModel> llama = *LanguageModel::Load(folder_->path(), threads.get());
    WorkerModelOptions options;
    options.folder = folder_->path();
    options.kv_cache_bytes = num_pages * HostKvMemory::PageBytes(llama->description());
    options.max_context = std::min(kMaxContext, num_pages * kPageRows);
    if (poisoned) {
      llama = std::make_unique<testing::PoisonedModel>(std::move(llama), kPoison, kBomb);
    }
    worker_ = *WorkerModel::Create(options, std::move(threads), std::move(llama),
                                   *Tokenizer::Load(folder_->path()));
    shared_ = std::make_unique<VerifierShared>(worker_.get());
    verifier_ = std::make_unique<DirectVerifier>(8, worker_.get(), nullptr, shared_.get());
    draft_ = std::make_unique<DirectDraft>(8, worker_.get());
    numbers_.clear();
  }
  size_t num_free() const { return worker_->caches().pages().num_free(); }
  size_t num_open() const { return worker_->caches().size() - worker_->caches().num_free(); }
  size_t num_pages() const { return worker_->caches().pages().num_pages(); }

  // Returns the next command to a slot that holds the first `cached` of `tokens`.
  v1::SlotPoint At(uint32_t slot, const Tokens& tokens, size_t cached) {
    return testing::PointAt(slot, 1, ++numbers_[slot], tokens, cached);
  }
  v1::SlotOpen Open(size_t prompt_length, const std::string& salt = "") {
    v1::SlotOpen open = ToSlotOpen(Greedy(), static_cast<uint32_t>(prompt_length));
    open.set_cache_salt(salt);
    return open;
  }
  // Returns an item that feeds tokens[cached, end) and asks for the next token.
  v1::VerifyItem Item(uint32_t slot, const Tokens& tokens, size_t cached, size_t end,
                      const std::string& salt = "") {
    v1::VerifyItem item;
    const v1::SlotPoint at = At(slot, tokens, cached);
    *item.mutable_at() = at;
    if (at.command_number() == 1) *item.mutable_open() = Open(tokens.size(), salt);
    item.mutable_token_ids()->Add(tokens.begin() + static_cast<ptrdiff_t>(cached),
                                  tokens.begin() + static_cast<ptrdiff_t>(end));
    item.set_sample(true);
    return item;
  }
  v1::VerifyResult Verify(const v1::VerifyItem& item) {
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() = item;
    const v1::VerifierReply reply = verifier_->Call(command);
    EXPECT_EQ(reply.verify().num_free_pages(), num_free());
    EXPECT_EQ(reply.verify().num_open_slots(), num_open());
    return reply.verify().results(0);
  }
  v1::VerifyResult Prompt(uint32_t slot, const Tokens& tokens, const std::string& salt = "") {
    const v1::VerifyResult result = Verify(Item(slot, tokens, 0, tokens.size(), salt));
    EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
    EXPECT_EQ(result.state().cached_len(), tokens.size());
    EXPECT_EQ(result.state().prefix_hash(), HashTokens(tokens));
    return result;
  }
  void Close(uint32_t slot, uint32_t epoch = 1) {
    v1::VerifierCommand command;
    v1::SlotClose& close = *command.mutable_update_slots()->add_closes();
    close.set_slot(slot);
    close.set_slot_epoch(epoch);
    verifier_->Call(command);
  }
  v1::ProposeResult Propose(uint32_t slot, const Tokens& tokens, size_t cached,
                            uint32_t draft_length, const std::string& salt = "") {
    v1::DraftCommand command;
    v1::ProposeItem& item = *command.mutable_propose()->add_items();
    *item.mutable_at() = At(slot, tokens, cached);
    if (item.at().command_number() == 1) *item.mutable_open() = Open(tokens.size(), salt);
    item.mutable_token_ids()->Add(tokens.begin() + static_cast<ptrdiff_t>(cached), tokens.end());
    item.set_draft_length(draft_length);
    const v1::DraftReply reply = draft_->Call(command);
    EXPECT_EQ(reply.propose().num_free_pages(), num_free());
    return reply.propose().results(0);
  }
  // Opens an `inline` ring with one entry at both sessions. Returns the reference of its first
  // block.
  v1::RingReference OpenRing() {
    v1::VerifierCommand create;
    create.mutable_create_ring()->set_transport(v1::RING_TRANSPORT_INLINE);
    create.mutable_create_ring()->set_entries(1);
    create.mutable_create_ring()->set_rows_per_entry(2);
    create.mutable_create_ring()->set_vocabulary_size(kVocabularySize);
    v1::RingReference ring;
    ring.set_ring_epoch(verifier_->Call(create).create_ring().ring_epoch());
    ring.set_sequence(1);
    v1::VerifierCommand confirm;
    confirm.mutable_confirm_ring()->set_ring_epoch(ring.ring_epoch());
    EXPECT_TRUE(verifier_->Call(confirm).has_confirm_ring());
    v1::DraftCommand open;
    open.mutable_open_ring()->set_transport(v1::RING_TRANSPORT_INLINE);
    open.mutable_open_ring()->set_ring_epoch(ring.ring_epoch());
    open.mutable_open_ring()->set_entries(1);
    open.mutable_open_ring()->set_rows_per_entry(2);
    open.mutable_open_ring()->set_vocabulary_size(kVocabularySize);
    EXPECT_TRUE(draft_->Call(open).has_open_ring());
    return ring;
  }
  // Returns the token that the model gives after `tokens`, without a worker.
  static int32_t NextToken(const Tokens& tokens) {
    ThreadPool threads(1);
    const auto model = *LanguageModel::Load(folder_->path(), &threads);
    const auto pages = *KvPagePool::Create(
        model->description(), HostKvMemory::Bytes(model->description(), tokens.size()));
    KvCache cache(pages.get(), tokens.size());
    const ForwardItem item{.cache = &cache, .token_ids = tokens, .parents = {}, .num_logits = 1};
    const LogitsView logits = *model->Forward(std::span(&item, 1));
    return Argmax({logits.row(0), kVocabularySize});
  }

  static testing::TempDir* folder_;
  std::unique_ptr<WorkerModel> worker_;
  std::unique_ptr<VerifierShared> shared_;
  std::unique_ptr<DirectVerifier> verifier_;
  std::unique_ptr<DirectDraft> draft_;
  std::map<uint32_t, uint64_t> numbers_;  // [slot]: number of the last command to the slot
};
testing::TempDir* PagesTest::folder_ = nullptr;

// Returns the result as text, without the state of the slot.
std::string Answer(v1::VerifyResult result) {
  result.clear_state();
  result.clear_num_cached_tokens();
  return result.SerializeAsString();
}

TEST_F(PagesTest, AContextThatIsLimitedByPagesIsReportedAsSuch) {
  Start(2);  // to learn the shape
  WorkerModelOptions options;
  options.folder = folder_->path();
  const auto describe = [&] { return (*WorkerModel::Load(options))->Describe(); };
  EXPECT_FALSE(describe().context_limited_by_pages());
  options.kv_cache_bytes = 2 * HostKvMemory::PageBytes(worker_->model().description());
  EXPECT_EQ(describe().max_context_tokens(), 2 * kPageRows);
  EXPECT_TRUE(describe().context_limited_by_pages());
  options.max_context = 2 * kPageRows;  // the options want no more
  EXPECT_FALSE(describe().context_limited_by_pages());
}

TEST_F(PagesTest, AHitGivesTheBitsOfComputing) {
  Start(12);
  const Tokens tokens = Text(200, 1);
  const v1::VerifyResult computed = Prompt(0, tokens);
  EXPECT_EQ(computed.num_cached_tokens(), 0);
  const v1::VerifyResult while_open = Prompt(1, tokens);
  EXPECT_EQ(while_open.num_cached_tokens(), 192);
  EXPECT_EQ(Answer(while_open), Answer(computed)) << "log-probabilities too";
  EXPECT_EQ(num_free(), num_pages() - 5) << "three pages shared, one of each";
  Close(0);
  Close(1);
  EXPECT_EQ(num_free(), num_pages()) << "pages that only the prefix cache holds are free";
  const v1::VerifyResult afterwards = Prompt(2, tokens);
  EXPECT_EQ(afterwards.num_cached_tokens(), 192);
  EXPECT_EQ(Answer(afterwards), Answer(computed));
  EXPECT_EQ(computed.next_token_id(), NextToken(tokens));
}

TEST_F(PagesTest, RowsOfThePrefixCacheAreNotScoredAndScoredRowsAreFoundThere) {
  Start(20);
  const Tokens tokens = Text(130, 1);
  const auto scored = [&](uint32_t slot, size_t begin, size_t end) {
    v1::VerifyItem item = Item(slot, tokens, begin, end);
    if (item.has_open()) item.mutable_open()->set_prompt_logprobs(2);
    item.set_sample(false);
    item.mutable_scores()->set_num_rows(static_cast<uint32_t>(end - begin));
    item.mutable_scores()->set_following_token_id(tokens[end]);
    return Verify(item);
  };
  const v1::VerifyResult computed = scored(0, 0, 64);
  EXPECT_EQ(computed.prompt_logprobs_size(), 64) << computed.state().message();
  EXPECT_EQ(Prompt(1, tokens).num_cached_tokens(), 64) << "the rows are there for others";
  const v1::VerifyResult again = scored(2, 0, 64);
  EXPECT_EQ(again.num_cached_tokens(), 0);
  EXPECT_EQ(Answer(again), Answer(computed));
  // Whoever has the scores already need not compute the rows again.
  v1::VerifyItem item = Item(3, tokens, 0, 64);
  item.mutable_open()->set_prompt_logprobs(2);
  item.set_sample(false);
  EXPECT_EQ(Verify(item).num_cached_tokens(), 64);
  EXPECT_EQ(scored(3, 64, 128).num_cached_tokens(), 0);
}

TEST_F(PagesTest, SharedPrefixesAreFoundUpToTheFirstDifferentPage) {
  Start(12);
  const Tokens shared = Text(150, 1);
  Prompt(0, Joined(shared, Text(30, 2)));
  const Tokens other = Joined(shared, Text(100, 3));
  const v1::VerifyResult result = Prompt(1, other);
  EXPECT_EQ(result.num_cached_tokens(), 128);
  EXPECT_EQ(result.next_token_id(), NextToken(other));
  Tokens early = shared;
  early[3] ^= 1;
  EXPECT_EQ(Prompt(2, early).num_cached_tokens(), 0);
}

TEST_F(PagesTest, TheTokenThatMustGiveLogitsIsComputed) {
  Start(12);
  const Tokens tokens = Text(128, 1);
  const v1::VerifyResult computed = Prompt(0, tokens);
  const v1::VerifyResult found = Prompt(1, tokens);
  EXPECT_EQ(found.num_cached_tokens(), 64) << "not the page of the last token";
  EXPECT_EQ(Answer(found), Answer(computed));
  EXPECT_EQ(Propose(2, tokens, 0, 2).num_cached_tokens(), 64);
}

TEST_F(PagesTest, ChunksThatAreFoundCompletelyComputeNothing) {
  Start(12);
  const Tokens tokens = Text(300, 1);
  const v1::VerifyResult computed = Prompt(0, tokens);
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 128}, {128, 256}}) {
    v1::VerifyItem chunk = Item(1, tokens, begin, end);
    chunk.set_sample(false);
    const v1::VerifyResult result = Verify(chunk);
    EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
    EXPECT_EQ(result.state().cached_len(), end);
    EXPECT_EQ(result.num_cached_tokens(), 128);
  }
  const v1::VerifyResult last = Verify(Item(1, tokens, 256, 300));
  EXPECT_EQ(last.num_cached_tokens(), 0);
  EXPECT_EQ(Answer(last), Answer(computed));
  // A drafter catches up.
  EXPECT_EQ(Propose(2, Tokens(tokens.begin(), tokens.begin() + 256), 0, 0).num_cached_tokens(),
            256);
}

TEST_F(PagesTest, NothingIsLookedUpBetweenPages) {
  Start(12);
  const Tokens tokens(200, 20);  // any 64 of them equal the first page
  const v1::VerifyResult computed = Prompt(0, tokens);
  v1::VerifyItem chunk = Item(1, tokens, 0, 10);
  chunk.set_sample(false);
  EXPECT_EQ(Verify(chunk).num_cached_tokens(), 0);
  const v1::VerifyResult rest = Verify(Item(1, tokens, 10, 200));
  EXPECT_EQ(rest.num_cached_tokens(), 0);
  EXPECT_EQ(Answer(rest), Answer(computed));
}

TEST_F(PagesTest, TenantsShareNothing) {
  Start(12);
  const Tokens tokens = Text(150, 1);
  const v1::VerifyResult computed = Prompt(0, tokens, "one");
  for (const std::string salt : {"another", "", "on"}) {
    const auto slot = static_cast<uint32_t>(1 + numbers_.size());
    const v1::VerifyResult result = Prompt(slot, tokens, salt);
    EXPECT_EQ(result.num_cached_tokens(), 0) << salt;
    EXPECT_EQ(Answer(result), Answer(computed));
    Close(slot);
  }
  EXPECT_EQ(Prompt(7, tokens, "one").num_cached_tokens(), 128);
}

TEST_F(PagesTest, SessionsShareTheCacheAndGiveTheirPagesBackAtTheirEnd) {
  Start(12);
  const Tokens tokens = Text(150, 1);
  const v1::VerifyResult computed = Prompt(0, tokens);
  verifier_ = std::make_unique<DirectVerifier>(8, worker_.get(), nullptr, shared_.get());
  EXPECT_EQ(num_free(), num_pages());
  numbers_.clear();
  const v1::VerifyResult found = Prompt(0, tokens);
  EXPECT_EQ(found.num_cached_tokens(), 128);
  EXPECT_EQ(Answer(found), Answer(computed));
}

TEST_F(PagesTest, DraftsArePublishedOnlyOnceTheyAreCommitted) {
  Start(12);
  Tokens tokens = Text(60, 1);
  const v1::ProposeResult proposed = Propose(0, tokens, 0, 8);
  ASSERT_EQ(proposed.draft_token_ids_size(), 8);
  ASSERT_EQ(proposed.state().cached_len(), 67) << "the first page is full";
  const Tokens drafted =
      Joined(tokens, Tokens(proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()));
  EXPECT_EQ(Propose(1, drafted, 0, 0).num_cached_tokens(), 0);
  // All tokens are committed, because the next command covers them.
  EXPECT_EQ(Propose(0, drafted, 67, 1).state().code(), v1::WORKER_CODE_OK);
  Tokens longer = drafted;
  longer.push_back(5);
  EXPECT_EQ(Propose(2, longer, 0, 1).num_cached_tokens(), 64);
}

TEST_F(PagesTest, RejectedTokensAreNotPublished) {
  Start(12);
  const Tokens tokens = Text(62, 1);
  Tokens wrong = Text(4, 2);
  wrong[0] = NextToken(tokens) == wrong[0] ? wrong[0] + 1 : wrong[0];
  v1::VerifyItem item = Item(0, tokens, 0, 62);
  item.mutable_draft_token_ids()->Add(wrong.begin(), wrong.end());
  const v1::VerifyResult result = Verify(item);
  EXPECT_EQ(result.num_accepted(), 0);
  EXPECT_EQ(worker_->caches().pages().num_published(), 0u);
  EXPECT_EQ(num_free(), num_pages() - 1) << "the page of rejected rows is back";
  // Three more tokens fill the first page, which is then published.
  Tokens longer = Joined(tokens, {result.next_token_id(), 3, 4});
  const v1::VerifyResult last = Verify(Item(0, longer, 62, 65));
  EXPECT_EQ(worker_->caches().pages().num_published(), 1u);
  EXPECT_EQ(last.next_token_id(), NextToken(longer));
  EXPECT_EQ(Prompt(1, longer).num_cached_tokens(), 64);
}

TEST_F(PagesTest, AFailedPassPublishesNothingAndGivesItsPagesBack) {
  Start(12, /*poisoned=*/true);
  Tokens bomb = Text(100, 1);
  bomb[99] = kBomb;
  const v1::VerifyResult failed = Verify(Item(0, bomb, 0, 100));
  EXPECT_EQ(failed.state().code(), v1::WORKER_CODE_INTERNAL);
  EXPECT_EQ(num_free(), num_pages());
  EXPECT_EQ(worker_->caches().pages().num_published(), 0u);
  Tokens poison = Text(100, 1);
  poison[99] = kPoison;
  const v1::VerifyResult poisoned = Verify(Item(1, poison, 0, 100));
  EXPECT_EQ(poisoned.state().code(), v1::WORKER_CODE_NON_FINITE_LOGITS);
  EXPECT_EQ(num_free(), num_pages());
  EXPECT_EQ(Propose(2, bomb, 0, 4).state().code(), v1::WORKER_CODE_INTERNAL);
  EXPECT_EQ(num_free(), num_pages());
}

TEST_F(PagesTest, WithoutAPageNothingChangesAndEarlierItemsKeepTheirPages) {
  Start(4);
  const Tokens first = Text(60, 1);
  const Tokens second = Text(128, 2);
  Prompt(0, first);
  Prompt(1, second);
  EXPECT_EQ(num_free(), 1u);
  // The first item of a batch takes the last page, the second item finds none, and the third item
  // needs none.
  const Tokens grown = Joined(first, Text(5, 3));
  const Tokens more = Joined(second, {7});
  const Tokens third = Text(60, 4);
  v1::VerifierCommand command;
  *command.mutable_verify()->add_items() = Item(0, grown, 60, 65);
  *command.mutable_verify()->add_items() = Item(1, more, 128, 129);
  v1::VerifyItem& back = *command.mutable_verify()->add_items();
  back = Item(2, third, 0, 60);
  const v1::VerifierReply reply = verifier_->Call(command);
  EXPECT_EQ(reply.verify().results(0).state().code(), v1::WORKER_CODE_OK);
  EXPECT_EQ(reply.verify().results(0).next_token_id(), NextToken(grown));
  const v1::SlotState& refused = reply.verify().results(1).state();
  EXPECT_EQ(refused.code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message(), HasSubstr("1 pages wanted, 0 of 4 are free (--kv-cache-bytes)"));
  EXPECT_EQ(refused.cached_len(), 128);
  EXPECT_EQ(refused.prefix_hash(), HashTokens(second));
  EXPECT_EQ(reply.verify().results(2).state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.verify().num_free_pages(), 0);
  // The command's number is not used up, and the slot continues when there is a page.
  Close(0);
  v1::VerifyItem again = command.verify().items(1);
  EXPECT_EQ(Verify(again).next_token_id(), NextToken(more));
}

TEST_F(PagesTest, AnItemWithoutPagesForItsDraftsIsRefusedAsAWhole) {
  Start(3);
  const Tokens neighbor = Text(70, 1);
  Prompt(0, neighbor);
  EXPECT_EQ(num_free(), 1u);
  const Tokens tokens = Text(62, 2);
  v1::VerifierCommand command;
  v1::VerifyItem& drafted = *command.mutable_verify()->add_items();
  drafted = Item(1, tokens, 0, 62);
  for (int i = 0; i < 3; ++i) drafted.add_draft_token_ids(20);
  const Tokens more = Joined(neighbor, {7});
  *command.mutable_verify()->add_items() = Item(0, more, 70, 71);
  const v1::VerifierReply reply = verifier_->Call(command);
  EXPECT_EQ(reply.verify().results(0).state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.verify().results(0).state().cached_len(), 0);
  EXPECT_EQ(reply.verify().results(1).next_token_id(), NextToken(more));
  const v1::ProposeResult proposed = Propose(2, tokens, 0, 4);
  EXPECT_EQ(proposed.state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(proposed.state().cached_len(), 0);
  EXPECT_EQ(num_free(), 1u);
}

TEST_F(PagesTest, ARefusedVerifyItemLeavesItsRingBlockForTheNextAttempt) {
  Start(2);
  Prompt(0, Text(70, 1));
  EXPECT_EQ(num_free(), 0u);
  const v1::RingReference ring = OpenRing();
  v1::VerifierCommand chunk;
  const std::vector<float> row(kVocabularySize, -std::log(static_cast<float>(kVocabularySize)));
  *chunk.mutable_log_prob_chunk()->mutable_ring() = ring;
  chunk.mutable_log_prob_chunk()->set_rows(1);
  chunk.mutable_log_prob_chunk()->set_data(row.data(), row.size() * sizeof(float));
  EXPECT_EQ(verifier_->Call(chunk).kind_case(), v1::VerifierReply::KIND_NOT_SET);
  v1::VerifyItem item = Item(1, Text(10, 2), 0, 10);
  *item.mutable_open() = ToSlotOpen(Sampled(), 10);
  item.add_draft_token_ids(20);
  *item.mutable_ring() = ring;
  EXPECT_EQ(Verify(item).state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  Close(0);
  const v1::VerifyResult judged = Verify(item);
  EXPECT_EQ(judged.state().code(), v1::WORKER_CODE_OK) << judged.state().message();
  EXPECT_EQ(judged.ring_error(), "");
  // A block is judged only once.
  v1::VerifyItem again = Item(2, Text(10, 3), 0, 10);
  *again.mutable_open() = ToSlotOpen(Sampled(), 10);
  again.add_draft_token_ids(20);
  *again.mutable_ring() = ring;
  EXPECT_NE(Verify(again).ring_error(), "");
}

TEST_F(PagesTest, ARefusedProposeItemGivesItsRingEntryBack) {
  Start(2);
  Prompt(0, Text(70, 1));
  EXPECT_EQ(num_free(), 0u);
  const Tokens tokens = Text(10, 2);
  v1::DraftCommand command;
  v1::ProposeItem& item = *command.mutable_propose()->add_items();
  *item.mutable_at() = At(1, tokens, 0);
  *item.mutable_open() = ToSlotOpen(Sampled(), 10);
  item.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  item.set_draft_length(2);
  *item.mutable_ring() = OpenRing();
  const v1::ProposeResult refused = draft_->Call(command).propose().results(0);
  EXPECT_EQ(refused.state().code(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
  Close(0);
  item.mutable_ring()->set_sequence(2);
  const v1::ProposeResult proposed = draft_->Call(command).propose().results(0);
  EXPECT_EQ(proposed.state().code(), v1::WORKER_CODE_OK) << proposed.state().message();
  EXPECT_EQ(proposed.draft_token_ids_size(), 2);
}

TEST_F(PagesTest, ARollbackFreesItsPagesBeforeNewOnesAreTaken) {
  Start(3);
  const Tokens tokens = Text(190, 1);
  Prompt(0, tokens);
  const Tokens turned = Joined(Tokens(tokens.begin(), tokens.begin() + 70), Text(120, 2));
  const v1::VerifyResult result = Verify(Item(0, turned, 70, 190));
  EXPECT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
  EXPECT_EQ(result.next_token_id(), NextToken(turned));
}

TEST_F(PagesTest, ASlotThatDivergesInASharedPageLeavesTheOtherSlotUnchanged) {
  Start(12);
  const Tokens tokens = Text(150, 1);
  Prompt(0, tokens);
  Prompt(1, tokens);
  const Tokens turned = Joined(Tokens(tokens.begin(), tokens.begin() + 100), Text(60, 2));
  const v1::VerifyResult result = Verify(Item(1, turned, 100, 160));
  EXPECT_EQ(result.next_token_id(), NextToken(turned));
  const Tokens more = Joined(tokens, {7});
  EXPECT_EQ(Verify(Item(0, more, 150, 151)).next_token_id(), NextToken(more));
  EXPECT_EQ(Prompt(2, turned).num_cached_tokens(), 128);
  EXPECT_EQ(Prompt(3, more).num_cached_tokens(), 128);
}

TEST_F(PagesTest, AThousandIdleSlotsHoldNoPage) {
  Start(2);
  WorkerModelOptions options;
  EXPECT_EQ(options.max_slots, 64u) << "unless told otherwise";
  CachePool caches(*KvPagePool::Create(worker_->model().description(),
                                       2 * HostKvMemory::PageBytes(worker_->model().description())),
                   1000, kMaxContext);
  SlotTable table(&caches, kVocabularySize, 1000);
  for (uint32_t slot = 0; slot < 1000; ++slot) {
    const v1::SlotOpen open = Open(10);
    ASSERT_EQ(table.Check(testing::PointAt(slot, 1, 1, {}, 0), &open).action,
              SlotTable::Action::kExecute);
  }
  EXPECT_EQ(caches.num_free(), 0u);
  EXPECT_EQ(caches.pages().num_free(), 2u);
}

// Requests share beginnings, on a pool that holds less than half of them. They are opened,
// continued and closed in any order. Each answer is the output of the model alone, or
// RESOURCE_EXHAUSTED.
TEST_F(PagesTest, AnswersDoNotDependOnWhatIsCachedEvictedOrShared) {
  std::map<Tokens, int32_t> expected;
  size_t num_cached = 0;
  size_t num_refused = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Start(9);
    std::mt19937 random(seed);
    std::map<uint32_t, Tokens> open;  // tokens that each open slot holds
    std::map<uint32_t, uint32_t> epochs;
    for (int step = 0; step < 80; ++step) {
      const uint32_t slot = random() % 5;
      const bool is_new = open.count(slot) == 0;
      if (!is_new && random() % 3 == 0) {
        Close(slot, epochs[slot]);
        open.erase(slot);
        continue;
      }
      // The slot goes back by some tokens, and then forward along one of two documents.
      Tokens tokens = is_new ? Tokens() : open.at(slot);
      tokens.resize(tokens.size() - random() % (tokens.size() / 2 + 1));
      const size_t kept = tokens.size();
      const Tokens document = Text(300, random() % 2);
      const size_t end = std::min<size_t>(300, kept + 1 + random() % 150);
      if (end == kept) continue;
      tokens.insert(tokens.end(), document.begin() + static_cast<ptrdiff_t>(kept),
                    document.begin() + static_cast<ptrdiff_t>(end));
      v1::VerifyItem item = Item(slot, tokens, kept, end);
      if (is_new) {
        ++epochs[slot];
        *item.mutable_open() = Open(tokens.size());
      }
      item.mutable_at()->set_slot_epoch(epochs[slot]);
      const v1::VerifyResult result = Verify(item);
      if (result.state().code() == v1::WORKER_CODE_RESOURCE_EXHAUSTED) {
        ++num_refused;
        ASSERT_EQ(result.state().cached_len(), open[slot].size()) << "opened, but empty";
        continue;
      }
      ASSERT_EQ(result.state().code(), v1::WORKER_CODE_OK) << result.state().message();
      num_cached += result.num_cached_tokens();
      if (expected.count(tokens) == 0) expected[tokens] = NextToken(tokens);
      ASSERT_EQ(result.next_token_id(), expected[tokens]) << "seed " << seed << " step " << step;
      open[slot] = std::move(tokens);
    }
  }
  EXPECT_GT(num_cached, 1000u);
  EXPECT_GT(num_refused, 5u);
}

}  // namespace
}  // namespace tandem
