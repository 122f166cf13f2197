// Compares accept/reject on a device, from raw logits to verdicts and reports, with AcceptReject of
// the CPU.
#include "kernels/sampling/accept_reject.h"

#include <cmath>
#include <limits>

#include "tests/cuda/kernels/device_rows.h"

namespace tandem::accept_reject_cuda_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Block {
  SamplingParams params;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  std::vector<int32_t> drafts;
  std::vector<std::vector<float>> logits;      // K + 1 rows
  std::vector<std::vector<float>> draft_rows;  // K rows of log-probabilities, or none for one-hot
  uint64_t position = 0;
};

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
      const uint32_t* const counts = CountsOf(block.prompt, block.output, size);
      BlockToVerify verify;
      verify.first_row = static_cast<int32_t>(rows.size());
      verify.num_drafted = static_cast<int32_t>(block.drafts.size());
      verify.how = DrawOfBlock(block.params, !block.draft_rows.empty());
      verify.lenience = block.params.lenience;
      verify.draft_token_ids = Upload(block.drafts);
      std::vector<float> flat;
      for (const std::vector<float>& q : block.draft_rows) {
        flat.insert(flat.end(), q.begin(), q.end());
      }
      verify.draft_log_probs = Upload(flat);
      verify.key = {.seed = block.params.seed, .position = block.position};
      for (size_t i = 0; i < block.logits.size(); ++i) {
        rows.push_back(block.logits[i]);
        adjustments.push_back(AdjustmentOf(block.params,
                                           static_cast<int32_t>(block.output.size() + i), counts,
                                           verify.draft_token_ids, static_cast<int32_t>(i)));
        sampling.push_back(SamplingOf(block.params));
        DrawKey key = verify.key;
        key.position += i;
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
    TokenCounts counts;
    for (const int32_t id : block.prompt) counts.Add(id, false);
    for (const int32_t id : block.output) counts.Add(id, true);
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
                         .draft_log_probs = q.empty() ? nullptr : q.data(),
                         .params = &block.params,
                         .counts = &counts,
                         .num_output_tokens = static_cast<int32_t>(block.output.size()),
                         .position = block.position});
  }

  static void ExpectSame(const Block& block, const DeviceVerdict& got,
                         const DeviceReport* reports) {
    const BlockVerdict want = OnTheCpu(block);
    ASSERT_EQ(got.finite != 0, want.finite);
    if (!want.finite) return;
    EXPECT_EQ(got.drafts_valid, 1);
    EXPECT_EQ(got.num_accepted, want.num_accepted);
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
    const auto kept = static_cast<size_t>(OnTheCpu(block).num_accepted);
    rejected += kept < block.drafts.size() ? 1 : 0;
    all_kept += !block.drafts.empty() && kept == block.drafts.size() ? 1 : 0;
  }
  EXPECT_GT(rejected, 30u);
  EXPECT_GT(all_kept, 30u);
}

TEST_F(AcceptRejectCudaTest, RowsThatAreNotFiniteMatterOnlyIfTheyAreUsed) {
  for (const SamplingParams& params : Modes()) {
    std::vector<Block> blocks;
    for (size_t bad = 0; bad < 5; ++bad) {
      blocks.push_back(RandomBlock(params, 4, 60, false));
      blocks.back().logits[bad][bad * 7] = kNan;
    }
    ExpectSame(blocks);
  }
}

TEST_F(AcceptRejectCudaTest, DraftRowsThatAreNotDistributionsDropTheBlock) {
  SamplingParams params;
  std::vector<Block> blocks;
  std::vector<Block> plainly;
  for (int kind = 0; kind < 5; ++kind) {
    Block block = RandomBlock(params, 3, 60, false);
    plainly.push_back(block);
    plainly.back().drafts.clear();
    plainly.back().draft_rows.clear();
    std::vector<float>& q = block.draft_rows[static_cast<size_t>(kind) % 3];
    const auto drafted = static_cast<size_t>(block.drafts[static_cast<size_t>(kind) % 3]);
    switch (kind) {
      case 0:
        q[5] = kNan;
        break;
      case 1:
        q[5] = 0.1f;
        break;
      case 2:
        q[drafted] = -std::numeric_limits<float>::infinity();
        break;
      case 3:
        for (float& x : q) x -= 0.01f;  // the sum is short by a hundredth
        break;
      default:
        q[5] = std::numeric_limits<float>::infinity();
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
  for (const SamplingParams& params : Modes()) blocks.push_back(RandomBlock(params, 3, 700, false));
  const Outcome together = Run(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const DeviceVerdict alone = Run({blocks[i]}).verdicts[0];
    EXPECT_EQ(alone.num_accepted, together.verdicts[i].num_accepted);
    EXPECT_EQ(alone.next_token_id, together.verdicts[i].next_token_id);
  }
}

}  // namespace
}  // namespace tandem::accept_reject_cuda_test
