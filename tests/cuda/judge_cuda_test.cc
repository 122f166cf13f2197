// Compares the judge on a GPU with the judge on the host. Both get logits of the same model.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/model/cuda/cuda_model.h"
#include "services/verifier/cuda_judge.h"
#include "tests/cuda/small_model.h"
#include "tests/support/random_heads.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/slots/to_slot_open.h"
#include "tests/worker/tiny_router.h"
#include "tests/worker/workers_under_test.h"

namespace tandem::judge_cuda_test {
namespace {

constexpr size_t kVocabularySize = 64;
constexpr size_t kContext = 192;
constexpr uint32_t kSlots = 4;

// What a slot is told, and what is known about it afterwards.
struct Case {
  SamplingParams params;
  std::vector<int32_t> token_ids;
  bool sample = true;
  std::vector<int32_t> drafts;
  std::vector<int32_t> parents;
  bool are_drawn = false;  // with equal probabilities of all tokens
  bool is_proposed = false;

  BlockVerdict verdict;
  std::vector<float> next_logits;
  GuessTree proposal;  // what the model's own heads draft next
};

class JudgeCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    testing::RandomModelSpec spec = testing::SmallModel(kVocabularySize, kContext);
    spec.embedding_scale = 2;
    testing::WriteRandomModel(folder_.path(), spec);
    testing::WriteRandomHeads(
        folder_ / "heads",
        {.hidden_size = spec.hidden_size, .vocabulary_size = kVocabularySize, .num_heads = 3});
    model_ = *CudaModel::Load(folder_.path(), {.heads = folder_ / "heads",
                                               .max_slots = kSlots,
                                               .judges = true,
                                               .spoil_freed_rows = true});
    caches_ = std::make_unique<CachePool>(*model_->TakePages(), kSlots, kContext);
    slots_ = std::make_unique<SlotTable>(caches_.get(), kVocabularySize, kSlots);
  }

  static std::vector<int32_t> Tokens(size_t count, int32_t seed) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<int32_t>((i * i * 31 + static_cast<size_t>(seed + 3) * (i + 1) * 17) %
                                    kVocabularySize);
    }
    return ids;
  }

  // Judges the cases in one batch, in slots of their own.
  void Run(Judge& judge, std::vector<Case*> cases) {
    std::vector<JudgeTask> tasks(cases.size());
    std::vector<GuessOrder> orders;
    for (size_t i = 0; i < cases.size(); ++i) {
      Case& one = *cases[i];
      const v1::SlotPoint at =
          testing::PointAt(static_cast<uint32_t>(i), epoch_, ++num_commands_, {}, 0);
      const v1::SlotOpen open = testing::ToSlotOpen(one.params, 3);
      Slot* const slot = slots_->Check(at, &open).slot;
      ASSERT_NE(slot, nullptr);
      ASSERT_TRUE(slots_
                      ->Begin(at,
                              {.token_ids = one.token_ids,
                               .num_more = one.drafts.size() + 1,
                               .needs_logits = one.sample},
                              *slot)
                      .ok());
      tasks[i].slot = slot;
      tasks[i].token_ids = one.token_ids;
      tasks[i].draft_token_ids = one.drafts;
      tasks[i].draft_parents = one.parents;
      if (one.are_drawn) tasks[i].draft_log_probs = uniform_.data();
      tasks[i].sample = one.sample;
      if (!one.is_proposed) continue;
      tasks[i].feature_place = orders.size();
      orders.push_back({.place = orders.size(), .limits = {3, 6}, .tree = {}});
    }
    const absl::Status status = judge.Run(tasks);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(model_->self_drafter()->Propose(orders).ok());
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i]->is_proposed) cases[i]->proposal = orders[*tasks[i].feature_place].tree;
    }
    for (size_t i = 0; i < cases.size(); ++i) Read(tasks[i], *cases[i]);
    ++epoch_;
  }

  // Reads the outcome, and compares the slot's books with it.
  void Read(const JudgeTask& task, Case& one) {
    one.verdict = task.verdict;
    EXPECT_TRUE(task.drafts_valid);
    std::vector<int32_t> held = one.token_ids;
    for (const int32_t node : one.verdict.path) {
      held.push_back(one.drafts[static_cast<size_t>(node)]);
    }
    EXPECT_EQ(task.slot->length(), held.size());
    EXPECT_EQ(task.slot->prefix_hash(), HashTokens(held));
    EXPECT_EQ(task.slot->cache()->length(), held.size());
    const std::vector<int32_t> next = {one.sample ? one.verdict.next_token_id : 1};
    const ForwardItem item = {
        .cache = task.slot->cache(), .token_ids = next, .parents = {}, .num_logits = 1};
    const auto logits = model_->Forward({&item, 1});
    ASSERT_TRUE(logits.ok()) << logits.status();
    one.next_logits.assign(logits->row(0), logits->row(0) + kVocabularySize);
  }

  // Judges the cases together on the GPU, and one after the other on the host.
  void ExpectSame(std::vector<Case>& cases) {
    std::vector<Case*> together;
    for (Case& one : cases) together.push_back(&one);
    CudaJudge judge(model_.get());
    Run(judge, together);
    HostJudge host_judge(model_.get());
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(i);
      Case host = cases[i];
      Run(host_judge, {&host});
      ExpectSame(cases[i], host);
    }
  }
  static void ExpectSame(const Case& got, const Case& want) {
    EXPECT_EQ(got.verdict.path, want.verdict.path);
    EXPECT_EQ(got.verdict.next_token_id, want.verdict.next_token_id);
    EXPECT_EQ(got.next_logits, want.next_logits) << "rows that were kept";
    ASSERT_EQ(got.verdict.log_probs.size(), want.verdict.log_probs.size());
    for (size_t i = 0; i < want.verdict.log_probs.size(); ++i) {
      EXPECT_NEAR(got.verdict.log_probs[i].log_prob, want.verdict.log_probs[i].log_prob, 1e-5);
    }
    EXPECT_EQ(got.proposal.token_ids, want.proposal.token_ids);
    EXPECT_EQ(got.proposal.parents, want.proposal.parents);
    EXPECT_EQ(got.proposal.chances, want.proposal.chances);
    EXPECT_EQ(got.proposal.token_ids.size(), got.is_proposed ? 6u : 0u);
    ASSERT_EQ(got.verdict.audit.size(), want.verdict.audit.size());
    for (size_t i = 0; i < want.verdict.audit.size(); ++i) {
      EXPECT_NEAR(got.verdict.audit[i].uniform, want.verdict.audit[i].uniform, 1e-5);
      EXPECT_NEAR(got.verdict.audit[i].draft_mode_excess, want.verdict.audit[i].draft_mode_excess,
                  1e-5);
    }
  }

  // Returns the tokens that plain decoding gives after `token_ids`.
  std::vector<int32_t> DecodePlainly(const SamplingParams& params,
                                     const std::vector<int32_t>& token_ids, size_t count) {
    HostJudge judge(model_.get());
    Case one;
    one.params = params;
    one.token_ids = token_ids;
    std::vector<int32_t> decoded;
    for (size_t i = 0; i < count; ++i) {
      Run(judge, {&one});
      decoded.push_back(one.verdict.next_token_id);
      one.token_ids.push_back(decoded.back());
    }
    return decoded;
  }

  static std::vector<SamplingParams> Modes() {
    SamplingParams greedy;
    greedy.temperature = 0;
    SamplingParams penalized = greedy;
    penalized.repetition_penalty = 1.3f;
    penalized.presence_penalty = 0.5f;
    penalized.num_logprobs = 2;
    penalized.min_tokens = 61;  // 58 tokens were output before the draft
    penalized.held_back_token_ids = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    SamplingParams coupled;
    coupled.reproducible = true;
    coupled.seed = 3;
    coupled.frequency_penalty = 0.4f;
    SamplingParams sampled;
    sampled.seed = 4;
    sampled.audit = true;
    sampled.repetition_penalty = 1.2f;
    return {greedy, penalized, coupled, sampled};
  }

  testing::TempDir folder_;
  const std::vector<float> uniform_ = std::vector<float>(
      kMaxTreeNodes * kVocabularySize, -std::log(static_cast<float>(kVocabularySize)));
  std::unique_ptr<CudaModel> model_;
  std::unique_ptr<CachePool> caches_;
  std::unique_ptr<SlotTable> slots_;
  uint32_t epoch_ = 1;
  uint64_t num_commands_ = 0;
};

TEST_F(JudgeCudaTest, KeepsThePathOfPlainDecodingAndItsRows) {
  // The rows of the draft lie on two pages.
  const std::vector<int32_t> token_ids = Tokens(61, 1);
  for (const SamplingParams& params : Modes()) {
    const std::vector<int32_t> plain = DecodePlainly(params, token_ids, 4);
    const auto other = [](int32_t id) { return (id + 1) % static_cast<int32_t>(kVocabularySize); };
    // Tokens 1, 3 and 6 follow each other. Every other token is wrong, or follows a wrong one.
    std::vector<Case> cases(3);
    cases[0].drafts = {other(plain[0]), plain[0],        other(plain[1]), plain[1],
                       plain[1],        other(plain[2]), plain[2],        plain[3]};
    cases[0].parents = {-1, -1, 1, 1, 0, 3, 3, 5};
    cases[1].drafts = {plain[0], plain[1], other(plain[2])};
    cases[2].sample = false;
    for (Case& one : cases) one.params = params;
    cases[0].is_proposed = cases[1].is_proposed = true;
    cases[0].token_ids = cases[1].token_ids = token_ids;
    cases[2].token_ids = Tokens(9, 2);
    ExpectSame(cases);
    EXPECT_EQ(cases[0].verdict.path, (std::vector<int32_t>{1, 3, 6}));
    EXPECT_EQ(cases[0].verdict.next_token_id, plain[3]);
    // What follows sees the rows of the chain that was kept.
    Case chain;
    chain.params = params;
    chain.is_proposed = true;
    chain.token_ids = token_ids;
    chain.token_ids.insert(chain.token_ids.end(), plain.begin(), plain.begin() + 3);
    HostJudge host_judge(model_.get());
    Run(host_judge, {&chain});
    EXPECT_EQ(chain.verdict.next_token_id, plain[3]);
    EXPECT_EQ(cases[0].next_logits, chain.next_logits);
    EXPECT_EQ(cases[0].proposal.token_ids, chain.proposal.token_ids);
    EXPECT_EQ(cases[0].proposal.chances, chain.proposal.chances);
    EXPECT_NE(cases[0].proposal.chances, cases[1].proposal.chances) << "another token is newest";
    EXPECT_EQ(cases[1].verdict.path, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(cases[1].verdict.next_token_id, plain[2]);
  }
}

TEST_F(JudgeCudaTest, LargeTreesOfEverySlotAreJudgedAsOnTheHost) {
  // Together they want 260 rows of logits, and a group has at most 256.
  std::mt19937_64 random(5);
  std::vector<Case> cases;
  for (const SamplingParams& params : Modes()) {
    Case& one = cases.emplace_back();
    one.params = params;
    one.token_ids = Tokens(10 + 3 * cases.size(), 3);
    one.are_drawn = params.plain_sampling();
    one.is_proposed = true;
    for (size_t i = 0; i < kMaxTreeNodes; ++i) {
      one.drafts.push_back(static_cast<int32_t>(random() % kVocabularySize));
      one.parents.push_back(static_cast<int32_t>(i / 9) - 1);
    }
  }
  ExpectSame(cases);
  size_t num_accepted = 0;
  for (const Case& one : cases) num_accepted += one.verdict.path.size();
  EXPECT_GT(num_accepted, 0u);
}

}  // namespace
}  // namespace tandem::judge_cuda_test
