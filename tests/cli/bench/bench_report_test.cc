#include "services/cli/bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/cli/bench/model_operations.h"
#include "services/cli/bench/predictions.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::DoubleNear;
using ::testing::HasSubstr;

struct RunNumbers {
  int tokens;
  int drafts;
  int drafted;
  int accepted;
  int tested;
  double draft_seconds;
  double transfer_seconds;
  double verify_seconds;
  double router_seconds;
};

RunTotals Totals(const RunNumbers& run) {
  v1::Completion completion;
  completion.mutable_usage()->set_completion_tokens(run.tokens);
  completion.mutable_speculation()->set_num_drafts(run.drafts);
  completion.mutable_speculation()->set_num_draft_tokens(run.drafted);
  completion.mutable_speculation()->set_num_accepted_tokens(run.accepted);
  completion.mutable_speculation()->set_num_tested_tokens(run.tested);
  v1::Timings* timings = completion.mutable_timings();
  timings->set_draft_seconds(run.draft_seconds);
  timings->set_transfer_seconds(run.transfer_seconds);
  timings->set_verify_seconds(run.verify_seconds);
  timings->set_router_seconds(run.router_seconds);
  timings->set_decode_seconds(run.draft_seconds + run.transfer_seconds + run.verify_seconds +
                              run.router_seconds);
  RunTotals totals;
  totals.Add(completion);
  return totals;
}

// Plain decoding: 100 rounds with 10 ms in the verifier and 1 ms outside of it.
BenchCell Plain() { return {"greedy", {}, Totals({101, 0, 0, 0, 0, 0, 0.06, 1.0, 0.04}), {}}; }

// 100 tokens: 40 rounds with two draft tokens each (58 tokens accepted) and two plain rounds. A
// draft step takes 2 ms, and a verify pass of three rows takes 12 ms.
BenchCell Drafted() {
  return {.mode = "greedy",
          .measured = {"", 2},
          .totals = Totals({101, 40, 80, 58, 70, 0.160, 0.050, 0.480 + 0.020, 0.034}),
          .speedups = {1.4, 1.5, 1.6}};
}

TEST(BenchReportTest, CostsComeFromTheMeasurements) {
  const std::vector<BenchRow> rows = MakeRows({Plain(), Drafted()}, 0.2);
  ASSERT_EQ(rows.size(), 2u);
  const BenchRow& row = rows[1];
  EXPECT_EQ(row.totals.plain_rounds(), 2);
  EXPECT_THAT(row.costs.plain_round, DoubleNear(0.011, 1e-12));
  EXPECT_THAT(row.costs.draft_step, DoubleNear(0.002, 1e-12));
  EXPECT_THAT(row.costs.verify_round, DoubleNear(0.012, 1e-12));
  EXPECT_THAT(row.costs.round_overhead, DoubleNear(0.002, 1e-12));
  EXPECT_THAT(row.cost_ratio, DoubleNear(0.2, 1e-12));
  EXPECT_THAT(row.rows_cost, DoubleNear(1.2, 1e-12));
  const double alpha = 58.0 / 70;
  EXPECT_THAT(row.predicted_speedup, DoubleNear((1 + alpha + alpha * alpha) / 1.4, 1e-12));
  EXPECT_THAT(row.predicted_speedup_measured,
              DoubleNear((1 + alpha + alpha * alpha) * 0.011 / 0.018, 1e-12));
  EXPECT_THAT(row.operations_factor.value(),
              DoubleNear((2 * 0.2 + 3) / (1 + alpha + alpha * alpha), 1e-12));
  EXPECT_THAT(row.speedup.ratio, DoubleNear(std::cbrt(1.4 * 1.5 * 1.6), 1e-12));
}

TEST(BenchReportTest, TableAndJsonHoldTheSameNumbers) {
  BenchContext context;
  context.server.set_model("big");
  context.server.set_draft_model("small");
  context.server.set_backend("cpu");
  context.hardware = "a machine";
  context.command_line = "tandem bench";
  const std::vector<BenchRow> rows = MakeRows({Plain(), Drafted()}, std::nullopt);
  const std::string table = RenderTable(rows, context, Palette(false));
  EXPECT_THAT(table, HasSubstr("big with the drafter small, cpu, a machine"));
  EXPECT_THAT(table, HasSubstr("1.50×"));
  EXPECT_THAT(table, HasSubstr("72 %"));
  EXPECT_THAT(table, HasSubstr("0.83"));
  const nlohmann::json json = ToJson(rows, context);
  EXPECT_EQ(json["command"], "tandem bench");
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["draft_length"], 0);
  EXPECT_FALSE(json["rows"][0].contains("speedup"));
  EXPECT_DOUBLE_EQ(json["rows"][1]["alpha"], 58.0 / 70);
  EXPECT_DOUBLE_EQ(json["rows"][1]["acceptance_rate"], 58.0 / 80);
  EXPECT_TRUE(json["rows"][1]["operations_factor_theorem_3_11"].is_null());
  EXPECT_DOUBLE_EQ(json["rows"][1]["predicted_speedup_theorem_3_8"], rows[1].predicted_speedup);
}

TEST(BenchReportTest, TheServersChoiceHasNoPredictions) {
  BenchCell chosen = Drafted();
  chosen.measured.draft_length = kAutoDraftLength;
  const std::vector<BenchRow> rows = MakeRows({Plain(), chosen}, 0.2);
  EXPECT_THAT(RenderTable(rows, {}, Palette(false)), ContainsRegex("greedy +auto +auto"));
  const nlohmann::json json = ToJson(rows, {});
  EXPECT_EQ(json["rows"][1]["draft_length"], "auto");
  EXPECT_DOUBLE_EQ(json["rows"][1]["speedup"], std::cbrt(1.4 * 1.5 * 1.6));
  EXPECT_FALSE(json["rows"][1].contains("predicted_speedup_theorem_3_8"));
}

TEST(BenchReportTest, ALookupHasNoPredictions) {
  BenchCell found = Drafted();
  found.measured.drafter = "suffix";
  const std::vector<BenchRow> rows = MakeRows({Plain(), Drafted(), found}, 0.2);
  EXPECT_FALSE(rows[2].operations_factor.has_value());
  EXPECT_THAT(RenderTable(rows, {}, Palette(false)), ContainsRegex("greedy +suffix +2"));
  const nlohmann::json json = ToJson(rows, {});
  EXPECT_TRUE(json["rows"][0]["drafter"].is_null());
  EXPECT_EQ(json["rows"][1]["drafter"], "auto");
  EXPECT_EQ(json["rows"][2]["drafter"], "suffix");
  EXPECT_FALSE(json["rows"][2].contains("predicted_speedup_theorem_3_8"));
}

TEST(BenchReportTest, TheLimitLeavesOutMessagesAndTheRouter) {
  // 100 tokens in 42 passes, which take 0.16 s in the drafter and 0.5 s in the verifier.
  const std::vector<BenchRow> rows = MakeRows({Plain(), Drafted()}, 0.2);
  EXPECT_THAT(rows[1].limit, DoubleNear(1.0 / (0.160 + 0.500), 1e-12));
  EXPECT_DOUBLE_EQ(ToJson(rows, {})["rows"][1]["limit"], rows[1].limit);
  EXPECT_FALSE(ToJson(rows, {})["rows"][0].contains("limit"));
  BenchCell lookup = Drafted();
  lookup.measured = {.drafter = "suffix", .draft_length = kAutoDraftLength};
  EXPECT_DOUBLE_EQ(MakeRows({Plain(), lookup}, 0.2)[1].limit, rows[1].limit);
}

TEST(BenchReportTest, HeadsAreComparedWithPlainDecodingBesideThem) {
  BenchCell slow = Plain();  // half as fast as without heads
  slow.measured.heads = "my-eagle";
  slow.totals = Totals({101, 0, 0, 0, 0, 0, 0.12, 2.0, 0.08});
  BenchCell eagle = Drafted();
  eagle.measured = {.drafter = "eagle", .draft_length = 4, .heads = "my-eagle"};
  const std::vector<BenchRow> rows = MakeRows({Plain(), Drafted(), slow, eagle}, 0.2);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_DOUBLE_EQ(rows[3].limit, 2 * rows[1].limit);
  EXPECT_THAT(rows[3].cost_ratio, DoubleNear(0.1, 1e-12));
  // The heads guess two tokens, however long a draft may be.
  EXPECT_THAT(rows[3].predicted_speedup,
              DoubleNear(PredictedSpeedup(rows[3].totals.Alpha(), 2, 0.1), 1e-12));
  EXPECT_FALSE(rows[3].operations_factor.has_value());
  const nlohmann::json json = ToJson(rows, {});
  EXPECT_FALSE(json["rows"][1].contains("heads"));
  EXPECT_EQ(json["rows"][2]["heads"], "my-eagle");
  EXPECT_EQ(json["rows"][3]["drafter"], "eagle");
  const std::string table = RenderTable(rows, {}, Palette(false));
  EXPECT_THAT(table, ContainsRegex("greedy +– \\(my-eagle\\) +0"));
  EXPECT_THAT(table, ContainsRegex("greedy +eagle \\(my-eagle\\) +4"));
}

TEST(BenchReportTest, AcceptanceIsShownByPosition) {
  v1::Completion completion;
  completion.mutable_usage()->set_completion_tokens(9);
  v1::SpeculationStats* stats = completion.mutable_speculation();
  stats->set_num_drafts(4);
  stats->set_num_draft_tokens(8);
  for (const int accepted : {3, 1}) stats->add_num_accepted_tokens_per_position(accepted);
  for (const int tested : {4, 3}) stats->add_num_tested_tokens_per_position(tested);
  BenchCell cell = Drafted();
  cell.totals = RunTotals();
  cell.totals.Add(completion);
  EXPECT_THAT(RenderTable(MakeRows({Plain(), cell}, 0.2), {}, Palette(false)),
              ContainsRegex("greedy +auto +2  0.75  0.33\n"));
}

TEST(BenchReportTest, FewerThanFivePairsHaveNoInterval) {
  BenchCell cell = Drafted();
  cell.speedups = {1.4, 1.5, 1.6, 1.5};
  const auto interval = [&cell] {
    return ToJson(MakeRows({Plain(), cell}, 0.2), {})["rows"][1]["speedup_95_percent"];
  };
  EXPECT_TRUE(interval().is_null());
  EXPECT_THAT(RenderTable(MakeRows({Plain(), cell}, 0.2), {}, Palette(false)),
              HasSubstr("few pairs"));
  cell.speedups.push_back(1.5);
  ASSERT_TRUE(interval().is_array());
  EXPECT_LT(interval()[0], 1.5);
  EXPECT_GT(interval()[1], 1.5);
}

TEST(BenchReportTest, ColumnsLineUp) {
  BenchContext context;
  const std::string table =
      RenderTable(MakeRows({Plain(), Drafted()}, 0.2), context, Palette(false));
  const auto width_of_line = [&table](const std::string& start) {
    const size_t begin = table.find(start);
    const std::string line = table.substr(begin, table.find('\n', begin) - begin);
    size_t characters = 0;
    for (char c : line) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    return characters;
  };
  const size_t width = width_of_line("   mode   drafter       K");
  EXPECT_EQ(width, width_of_line(" greedy         –       0"));
  EXPECT_EQ(width, width_of_line(" greedy      auto       2"));
}

TEST(ModelOperationsTest, CountsTheWeightsOfAToken) {
  const testing::TempDir dir;
  std::ofstream(dir / "config.json")
      << R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
             "num_key_value_heads": 1, "head_dim": 6, "num_hidden_layers": 5,
             "intermediate_size": 16, "vocab_size": 100, "max_position_embeddings": 64})";
  const auto weights = WeightsPerToken(dir.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(*weights, 5 * (2 * 8 * 2 * 6 + 2 * 8 * 1 * 6 + 3 * 8 * 16) + 8 * 100);
}

TEST(ModelOperationsTest, NamesTheFileOfABrokenConfiguration) {
  const testing::TempDir dir;
  EXPECT_FALSE(WeightsPerToken(dir.path()).ok());
  std::ofstream(dir / "config.json") << R"({"hidden_size": 8})";
  EXPECT_THAT(std::string(WeightsPerToken(dir.path()).status().message()),
              HasSubstr("config.json"));
}

}  // namespace
}  // namespace tandem::cli
