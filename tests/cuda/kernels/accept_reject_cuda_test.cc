// Compares accept/reject on a device, from raw logits to verdicts and reports, with AcceptReject of
// the CPU.
#include "kernels/sampling/accept_reject.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "tests/cuda/kernels/device_rows.h"

namespace tandem::accept_reject_cuda_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How the tokens of a tree come about.
enum class Siblings { kFound, kWithReplacement, kWithoutReplacement, kFoundLast };

struct Block {
  SamplingParams params;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  std::vector<int32_t> drafts;
  std::vector<int32_t> parents;                // empty: a chain
  std::vector<std::vector<float>> logits;      // K + 1 rows
  std::vector<std::vector<float>> draft_rows;  // K - num_found rows of log-probabilities, or none
  size_t num_found = 0;
  uint64_t position = 0;

  // Returns the draft tokens that lead to row `row`, in the order of their positions.
  std::vector<int32_t> Path(size_t row) const {
    if (parents.empty()) return {drafts.begin(), drafts.begin() + static_cast<ptrdiff_t>(row)};
    std::vector<int32_t> path;
    for (auto node = static_cast<int32_t>(row) - 1; node >= 0;
         node = parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), drafts[static_cast<size_t>(node)]);
    }
    return path;
  }
  // Returns the tokens of the earlier siblings of draft token `node`.
  std::vector<int32_t> EarlierSiblings(size_t node) const {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < node; ++i) {
      if (parents[i] == parents[node]) tokens.push_back(drafts[i]);
    }
    return tokens;
  }
};

// Removes tokens from a row of log-probabilities, unless they are almost all of it.
void Remove(const std::vector<int32_t>& tokens, std::vector<float>* log_probs) {
  std::vector<float> left = *log_probs;
  for (const int32_t token : tokens) left[static_cast<size_t>(token)] = -kInfinity;
  double sum = 0;
  for (const float x : left) sum += std::exp(static_cast<double>(x));
  if (sum < 1e-3) return;
  for (float& x : left) x -= static_cast<float>(std::log(sum));
  *log_probs = left;
}

class AcceptRejectCudaTest : public testing::DeviceRowsTest {
 protected:
  struct Outcome {
    std::vector<DeviceVerdict> verdicts;
    std::vector<DeviceReport> reports;  // reports of all rows
  };

  // Returns a block of a drafter whose logits are the target's logits plus noise.
  Block RandomBlock(const SamplingParams& params, size_t num_drafts, size_t size, bool one_hot) {
    Block block;
    block.params = params;
    block.params.seed = random_();
    block.position = random_() % 100000;
    block.prompt = RandomIds(6, size);
    block.output = RandomIds(4, size);
    TokenCounts context;
    for (const int32_t id : block.prompt) context.Add(id, false);
    for (const int32_t id : block.output) context.Add(id, true);
    const bool is_plain = DrawOf(params) == RowDraw::kPlain;
    for (size_t i = 0; i <= num_drafts; ++i) {
      block.logits.push_back(Uniform(size, -4, 4));
      if (i == num_drafts) break;
      std::vector<float> draft_logits = block.logits.back();
      for (float& logit : draft_logits) logit += Uniform(1, -0.7f, 0.7f)[0];
      std::vector<float> q(size);
      std::vector<float> scratch(size);
      const DraftDraw draw = DrawDraftToken(
          draft_logits, block.params, context, static_cast<int32_t>(block.output.size() + i),
          {.seed = block.params.seed, .position = block.position + i},
          is_plain ? std::span(q) : std::span<float>(), scratch);
      block.drafts.push_back(draw.token_id);
      context.Add(draw.token_id, true);
      if (is_plain && !one_hot) block.draft_rows.push_back(q);
    }
    return block;
  }

  // Returns a tree of `num_drafts` tokens. Most of them are children of the root.
  Block RandomTree(const SamplingParams& params, size_t num_drafts, size_t size,
                   Siblings siblings) {
    Block block = RandomBlock(params, 0, size, true);
    const bool is_drawn = DrawOf(params) == RowDraw::kPlain && siblings != Siblings::kFound;
    if (is_drawn && siblings == Siblings::kFoundLast) block.num_found = num_drafts / 2;
    for (size_t i = 0; i < num_drafts; ++i) {
      // A walk from a random token towards the root.
      auto parent = static_cast<int32_t>(i) - 1;
      while (parent >= 0 &&
             (random_() % 4 > 0 ||
              block.Path(static_cast<size_t>(parent) + 1).size() == kMaxDraftDepth)) {
        parent = block.parents[static_cast<size_t>(parent)];
      }
      block.parents.push_back(parent);
      block.logits.push_back(Uniform(size, -4, 4));
      const bool is_found = !is_drawn || i + block.num_found >= num_drafts;
      block.drafts.push_back(is_found ? AmongTheBest(block, i) : 0);
      if (!is_found) DrawDraft(block, i, siblings == Siblings::kWithoutReplacement);
    }
    return block;
  }

  // Returns one of the three tokens that the target likes most at the place of draft token `node`.
  int32_t AmongTheBest(const Block& block, size_t node) {
    std::vector<float> logits = block.logits[static_cast<size_t>(block.parents[node] + 1)];
    for (size_t skipped = random_() % 3; skipped > 0; --skipped) {
      logits[static_cast<size_t>(Argmax(logits))] = -kInfinity;
    }
    return Argmax(logits);
  }

  // Draws draft token `node`, whose ancestors are known. Appends its row.
  void DrawDraft(Block& block, size_t node, bool without_replacement) {
    const auto row = static_cast<size_t>(block.parents[node] + 1);
    const std::vector<int32_t> path = block.Path(row);
    const std::vector<int32_t> siblings = block.EarlierSiblings(node);
    TokenCounts context = CountsOf(block);
    for (const int32_t id : path) context.Add(id, true);
    std::vector<float> draft_logits = block.logits[row];
    for (float& logit : draft_logits) logit += Uniform(1, -3, 3)[0];
    std::vector<float> q(block.logits[row].size());
    std::vector<float> scratch(q.size());
    const DrawKey key = {.seed = block.params.seed,
                         .position = block.position + path.size(),
                         .sibling = static_cast<uint8_t>(siblings.size())};
    DrawDraftToken(draft_logits, block.params, context,
                   static_cast<int32_t>(block.output.size() + path.size()), key, q, scratch);
    if (without_replacement) Remove(siblings, &q);
    block.drafts[node] = DrawFromLogProbs(q, tandem::Uniform(key, DrawPurpose::kPropose));
    block.draft_rows.push_back(q);
  }

  static TokenCounts CountsOf(const Block& block) {
    TokenCounts counts;
    for (const int32_t id : block.prompt) counts.Add(id, false);
    for (const int32_t id : block.output) counts.Add(id, true);
    return counts;
  }

  // Returns the block without its draft.
  static Block Plainly(Block block) {
    block.drafts.clear();
    block.parents.clear();
    block.draft_rows.clear();
    block.num_found = 0;
    return block;
  }

  Outcome Run(const std::vector<Block>& blocks) {
    const size_t size = blocks[0].logits[0].size();
    Rows rows;
    std::vector<RowAdjustment> adjustments;
    std::vector<RowSampling> sampling;
    std::vector<RowToDraw> draws;
    std::vector<int32_t> block_of_row;
    std::vector<BlockToVerify> to_verify;
    std::vector<ReportToMake> wanted;
    for (const Block& block : blocks) {
      const uint32_t* const counts = DeviceRowsTest::CountsOf(block.prompt, block.output, size);
      BlockToVerify verify;
      verify.first_row = static_cast<int32_t>(rows.size());
      verify.num_drafted = static_cast<int32_t>(block.drafts.size());
      verify.num_found = static_cast<int32_t>(block.num_found);
      verify.how = DrawOfBlock(block.params, !block.draft_rows.empty());
      verify.lenience = block.params.lenience;
      verify.draft_token_ids = Upload(block.drafts);
      verify.draft_parents = Upload(block.parents);
      std::vector<float> flat;
      for (const std::vector<float>& q : block.draft_rows) {
        flat.insert(flat.end(), q.begin(), q.end());
      }
      verify.draft_log_probs = Upload(flat);
      verify.key = {.seed = block.params.seed, .position = block.position};
      for (size_t i = 0; i < block.logits.size(); ++i) {
        const std::vector<int32_t> path = block.Path(i);
        rows.push_back(block.logits[i]);
        adjustments.push_back(
            AdjustmentOf(block.params, static_cast<int32_t>(block.output.size() + path.size()),
                         counts, Upload(path), static_cast<int32_t>(path.size())));
        sampling.push_back(SamplingOf(block.params));
        DrawKey key = verify.key;
        key.position += path.size();
        draws.push_back({verify.how == RowDraw::kPlain ? RowDraw::kNone : verify.how, key});
        block_of_row.push_back(static_cast<int32_t>(to_verify.size()));
      }
      to_verify.push_back(verify);
      wanted.push_back({block.params.audit, block.params.num_logprobs});
    }

    const size_t stride = size + kGap;
    float* const logits = UploadRows(rows);
    float* const values = UploadRows(rows);
    int32_t* const not_finite = Upload(std::vector<int32_t>(rows.size(), 9));
    int32_t* const row_token_ids = Upload(std::vector<int32_t>(rows.size(), 9));
    DeviceVerdict* const verdicts = Upload(std::vector<DeviceVerdict>(blocks.size()));
    DeviceReport* const reports = Upload(std::vector<DeviceReport>(rows.size()));
    const DeviceVerifyArgs verify = {.num_blocks = blocks.size(),
                                     .vocabulary_size = size,
                                     .stride = stride,
                                     .blocks = Upload(to_verify),
                                     .values = values,
                                     .not_finite = not_finite,
                                     .row_token_ids = row_token_ids,
                                     .verdicts = verdicts};
    const auto expect_ok = [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; };
    expect_ok(AdjustLogits({.rows = rows.size(),
                            .vocabulary_size = size,
                            .stride = stride,
                            .adjustments = Upload(adjustments),
                            .logits = logits,
                            .adjusted = values,
                            .not_finite = not_finite},
                           stream()));
    expect_ok(LogProbs({.rows = rows.size(),
                        .vocabulary_size = size,
                        .stride = stride,
                        .params = Upload(sampling),
                        .adjusted = values,
                        .log_probs = values},
                       stream()));
    expect_ok(DrawTokens({.rows = rows.size(),
                          .vocabulary_size = size,
                          .stride = stride,
                          .draws = Upload(draws),
                          .values = values,
                          .not_finite = not_finite,
                          .token_ids = row_token_ids},
                         stream()));
    expect_ok(AcceptRejectBlocks(verify, stream()));
    expect_ok(MakeReports({.verify = verify,
                           .logits = logits,
                           .rows = rows.size(),
                           .block_of_row = Upload(block_of_row),
                           .wanted = Upload(wanted),
                           .reports = reports},
                          stream()));
    return {Download(verdicts, blocks.size()), Download(reports, rows.size())};
  }

  static BlockVerdict OnTheCpu(const Block& block) {
    TokenCounts counts = CountsOf(block);
    std::vector<float> logits;
    std::vector<float> q;
    for (const std::vector<float>& row : block.logits) {
      logits.insert(logits.end(), row.begin(), row.end());
    }
    for (const std::vector<float>& row : block.draft_rows)
      q.insert(q.end(), row.begin(), row.end());
    return AcceptReject({.target_logits = logits.data(),
                         .logits_stride = block.logits[0].size(),
                         .vocabulary_size = block.logits[0].size(),
                         .draft_token_ids = block.drafts,
                         .draft_parents = block.parents,
                         .draft_log_probs = q.empty() ? nullptr : q.data(),
                         .num_found = block.num_found,
                         .params = &block.params,
                         .counts = &counts,
                         .num_output_tokens = static_cast<int32_t>(block.output.size()),
                         .position = block.position});
  }

  static std::vector<int32_t> PathOf(const DeviceVerdict& verdict) {
    return {verdict.path, verdict.path + verdict.num_accepted};
  }

  static void ExpectSame(const Block& block, const DeviceVerdict& got,
                         const DeviceReport* reports) {
    const BlockVerdict want = OnTheCpu(block);
    ASSERT_EQ(got.finite != 0, want.finite);
    if (!want.finite) return;
    EXPECT_EQ(got.drafts_valid, 1);
    EXPECT_EQ(PathOf(got), want.path);
    EXPECT_EQ(got.next_token_id, want.next_token_id);
    for (size_t i = 0; i < want.audit.size(); ++i) {
      EXPECT_NEAR(reports[i].audit.uniform, want.audit[i].uniform, 1e-5);
      EXPECT_NEAR(reports[i].audit.draft_mode_excess, want.audit[i].draft_mode_excess, 1e-5);
    }
    for (size_t i = 0; i < want.log_probs.size(); ++i) {
      EXPECT_NEAR(reports[i].log_prob, want.log_probs[i].log_prob, 1e-5);
      ASSERT_EQ(static_cast<size_t>(reports[i].num_top), want.log_probs[i].top.size());
      for (size_t n = 0; n < want.log_probs[i].top.size(); ++n) {
        EXPECT_EQ(reports[i].top[n].token_id, want.log_probs[i].top[n].token_id);
        EXPECT_NEAR(reports[i].top[n].log_prob, want.log_probs[i].top[n].log_prob, 1e-5);
      }
    }
  }

  void ExpectSame(const std::vector<Block>& blocks) {
    const Outcome got = Run(blocks);
    size_t row = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSame(blocks[i], got.verdicts[i], &got.reports[row]);
      row += blocks[i].logits.size();
    }
  }

  std::vector<SamplingParams> Modes() {
    SamplingParams greedy;
    greedy.temperature = 0;
    SamplingParams lenient_greedy = greedy;
    lenient_greedy.lenience = 0.3f;
    SamplingParams coupled;
    coupled.reproducible = true;
    coupled.top_p = 0.9f;
    SamplingParams sampled;
    SamplingParams sharp;
    sharp.temperature = 0.4f;
    sharp.top_k = 12;
    SamplingParams lenient = sampled;
    lenient.lenience = 0.5f;
    SamplingParams everything;
    everything.top_p = 0.95f;
    everything.min_p = 0.01f;
    everything.repetition_penalty = 1.2f;
    everything.frequency_penalty = 0.3f;
    everything.logit_bias = {{3, 1.5f}, {8, -2.0f}};
    everything.min_tokens = 7;
    everything.held_back_token_ids = {0, 1};
    everything.audit = true;
    everything.num_logprobs = 5;
    return {greedy, lenient_greedy, coupled, sampled, sharp, lenient, everything};
  }

  static constexpr Siblings kAllSiblings[] = {Siblings::kFound, Siblings::kWithReplacement,
                                              Siblings::kWithoutReplacement, Siblings::kFoundLast};
};

TEST_F(AcceptRejectCudaTest, KeepsAndDrawsTheTokensOfTheCpu) {
  std::vector<Block> blocks;
  for (int repeat = 0; repeat < 12; ++repeat) {
    for (const SamplingParams& params : Modes()) {
      for (const size_t num_drafts : {0, 1, 4}) {
        blocks.push_back(RandomBlock(params, num_drafts, 90, repeat % 3 == 2));
      }
    }
  }
  ExpectSame(blocks);

  // Every kind of end occurred.
  size_t rejected = 0;
  size_t all_kept = 0;
  for (const Block& block : blocks) {
    const auto kept = static_cast<size_t>(OnTheCpu(block).path.size());
    rejected += kept < block.drafts.size() ? 1 : 0;
    all_kept += !block.drafts.empty() && kept == block.drafts.size() ? 1 : 0;
  }
  EXPECT_GT(rejected, 30u);
  EXPECT_GT(all_kept, 30u);
}

TEST_F(AcceptRejectCudaTest, TreesKeepAndDrawTheTokensOfTheCpu) {
  std::vector<Block> blocks;
  for (int repeat = 0; repeat < 11; ++repeat) {
    for (SamplingParams params : Modes()) {
      params.audit = true;
      params.num_logprobs = repeat % 2 == 0 ? 2 : -1;
      for (const Siblings siblings : kAllSiblings) {
        for (const size_t num_drafts : {3, 8}) {
          blocks.push_back(RandomTree(params, num_drafts, 24, siblings));
        }
      }
    }
  }
  ExpectSame(blocks);

  // Every kind of decision occurred: a later sibling was kept after tests of one and of more
  // siblings, and all of several siblings were rejected.
  int later = 0;
  int much_later = 0;
  int rejected_after_two = 0;
  for (const Block& block : blocks) {
    const auto num_drawn = block.draft_rows.size();
    const BlockVerdict verdict = OnTheCpu(block);
    for (const int32_t node : verdict.path) {
      const auto child = static_cast<size_t>(node);
      const size_t num_earlier = block.EarlierSiblings(child).size();
      later += child < num_drawn && num_earlier == 1 ? 1 : 0;
      much_later += child < num_drawn && num_earlier > 1 ? 1 : 0;
    }
    const int32_t last = verdict.path.empty() ? kDraftRoot : verdict.path.back();
    const auto num_children = std::count(
        block.parents.begin(), block.parents.begin() + static_cast<ptrdiff_t>(num_drawn), last);
    rejected_after_two += num_children >= 2 ? 1 : 0;
  }
  EXPECT_GT(later, 20);
  EXPECT_GT(much_later, 5);
  EXPECT_GT(rejected_after_two, 20);
}

TEST_F(AcceptRejectCudaTest, FoundSiblingsAreKeptIfTheTargetDrawsThem) {
  // The root has one drawn child and three found ones, which come last. The drawn child has three
  // found children.
  std::vector<Block> blocks;
  for (int repeat = 0; repeat < 120; ++repeat) {
    SamplingParams params;
    params.temperature = 0.7f;
    params.audit = true;
    Block block = RandomBlock(params, 0, 24, true);
    block.parents = {-1, -1, -1, -1, 0, 0, 0};
    block.num_found = 6;
    for (size_t row = 0; row < 7; ++row) block.logits.push_back(Uniform(24, -4, 4));
    block.drafts.push_back(0);
    DrawDraft(block, 0, false);
    for (const size_t row : {0, 1}) {
      std::vector<float> logits = block.logits[row];
      for (int best = 0; best < 3; ++best) {
        block.drafts.push_back(Argmax(logits));
        logits[static_cast<size_t>(block.drafts.back())] = -kInfinity;
      }
    }
    blocks.push_back(block);
  }
  ExpectSame(blocks);
  int after_drawn = 0;
  int first_found = 0;
  int later_found = 0;
  for (const Block& block : blocks) {
    for (const int32_t node : OnTheCpu(block).path) {
      after_drawn += node >= 1 && node <= 3 ? 1 : 0;
      first_found += node == 4 ? 1 : 0;
      later_found += node > 4 ? 1 : 0;
    }
  }
  EXPECT_GT(after_drawn, 5);
  EXPECT_GT(first_found, 5);
  EXPECT_GT(later_found, 5);
}

TEST_F(AcceptRejectCudaTest, TheLongestPathOfTheLargestTreeIsKept) {
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams coupled;
  coupled.reproducible = true;
  for (const SamplingParams& params : {greedy, coupled}) {
    Block block = RandomBlock(params, 0, 40, true);
    // A path of kMaxDraftDepth tokens, each of which follows three other siblings.
    for (size_t i = 0; i < kMaxDraftTokens; ++i) {
      const auto level = static_cast<int32_t>(i / 4);
      block.parents.push_back(level == 0 ? kDraftRoot : 4 * level - 1);
      block.logits.push_back(Uniform(40, -4, 4));
      block.drafts.push_back(-1);
    }
    std::vector<int32_t> path;
    for (size_t i = 0; i < kMaxDraftTokens; i += 4) {
      Block plainly = Plainly(block);
      plainly.logits = {block.logits[i]};
      plainly.position = block.position + i / 4;
      const int32_t next = OnTheCpu(plainly).next_token_id;
      for (size_t sibling = 0; sibling < 4; ++sibling) {
        block.drafts[i + sibling] = (next + 3 - static_cast<int32_t>(sibling)) % 40;
      }
      path.push_back(static_cast<int32_t>(i) + 3);
    }
    ASSERT_EQ(path.size(), kMaxDraftDepth);
    ExpectSame(std::vector<Block>{block});
    EXPECT_EQ(PathOf(Run({block}).verdicts[0]), path);
  }
}

TEST_F(AcceptRejectCudaTest, ARejectionThatLeavesNothingIsTakenBack) {
  // Each q is a little above p, and has ten times the probability of an unlikely token, which is
  // drawn. Nothing is left of p - q then, so that p stays as it is for the next sibling.
  SamplingParams params;
  std::vector<Block> blocks;
  int rejected = 0;
  while (blocks.size() < 60) {
    Block block = RandomBlock(params, 0, 90, true);
    std::vector<float> p(90);
    LogProbs(block.logits[0], params, p);
    const size_t num_bad = 1 + blocks.size() % 3;
    for (size_t i = 0; i < 90 && block.drafts.size() < num_bad; ++i) {
      if (p[i] > -10.0f) continue;
      block.drafts.push_back(static_cast<int32_t>(i));
      block.draft_rows.push_back(p);
      for (float& x : block.draft_rows.back()) x += 1e-4f;
      block.draft_rows.back()[i] += std::log(10.0f);
    }
    if (block.drafts.size() < num_bad) continue;
    block.drafts.push_back(0);
    block.parents.assign(num_bad + 1, kDraftRoot);
    DrawDraft(block, num_bad, false);
    block.logits.resize(num_bad + 2, block.logits[0]);
    rejected += OnTheCpu(block).path.empty() ? 1 : 0;
    blocks.push_back(block);
  }
  EXPECT_GT(rejected, 0);
  ExpectSame(blocks);
}

TEST_F(AcceptRejectCudaTest, RowsThatAreNotFiniteMatterOnlyIfTheyAreUsed) {
  for (const SamplingParams& params : Modes()) {
    std::vector<Block> blocks;
    for (size_t bad = 0; bad < 5; ++bad) {
      blocks.push_back(RandomBlock(params, 4, 60, false));
      blocks.back().logits[bad][bad * 7] = kNan;
      blocks.push_back(RandomTree(params, 4, 60, Siblings::kWithReplacement));
      blocks.back().logits[bad][bad * 7] = kNan;
    }
    ExpectSame(blocks);
  }
}

TEST_F(AcceptRejectCudaTest, DraftRowsThatAreNotDistributionsDropTheBlock) {
  SamplingParams params;
  std::vector<Block> blocks;
  std::vector<Block> plainly;
  for (int kind = 0; kind < 10; ++kind) {
    Block block = kind < 5 ? RandomBlock(params, 3, 60, false)
                           : RandomTree(params, 6, 60, Siblings::kFoundLast);
    plainly.push_back(Plainly(block));
    std::vector<float>& q = block.draft_rows[static_cast<size_t>(kind) % 3];
    const auto drafted = static_cast<size_t>(block.drafts[static_cast<size_t>(kind) % 3]);
    switch (kind % 5) {
      case 0:
        q[5] = kNan;
        break;
      case 1:
        q[5] = 0.1f;
        break;
      case 2:
        q[drafted] = -kInfinity;
        break;
      case 3:
        for (float& x : q) x -= 0.01f;  // the sum is short by a hundredth
        break;
      default:
        q[5] = kInfinity;
    }
    blocks.push_back(block);
  }
  const Outcome got = Run(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(got.verdicts[i].drafts_valid, 0) << i;
    EXPECT_EQ(got.verdicts[i].num_accepted, 0) << i;
    EXPECT_EQ(got.verdicts[i].next_token_id, OnTheCpu(plainly[i]).next_token_id) << i;
  }
}

TEST_F(AcceptRejectCudaTest, ABlockHasTheSameVerdictAloneAndAmongOthers) {
  std::vector<Block> blocks;
  for (const SamplingParams& params : Modes()) {
    blocks.push_back(RandomBlock(params, 3, 700, false));
    blocks.push_back(RandomTree(params, 7, 700, Siblings::kWithoutReplacement));
  }
  const Outcome together = Run(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const DeviceVerdict alone = Run({blocks[i]}).verdicts[0];
    EXPECT_EQ(PathOf(alone), PathOf(together.verdicts[i]));
    EXPECT_EQ(alone.next_token_id, together.verdicts[i].next_token_id);
  }
}

}  // namespace
}  // namespace tandem::accept_reject_cuda_test
