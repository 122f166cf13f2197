#include "services/cli/bench/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/terminal/table.h"

namespace tandem::cli {

namespace {

double PerRound(double seconds, int64_t rounds) {
  return rounds > 0 ? seconds / static_cast<double>(rounds) : 0;
}

constexpr size_t kColumnWidths[] = {7, 10, 8, 10, 9, 15, 10, 10, 6, 10, 10, 10, 10, 6, 6, 9, 10, 8};

std::string IntervalCell(const RatioInterval& speedup) {
  if (!speedup.is_shown()) return "few pairs";
  return Number(speedup.low, 2) + " – " + Number(speedup.high, 2);
}

std::string DrafterLabel(const std::string& drafter) { return drafter.empty() ? "auto" : drafter; }

std::vector<std::string> RowCells(const BenchRow& row) {
  const TimeSplit& seconds = row.totals.seconds();
  const int64_t rounds = row.totals.rounds();
  const bool drafts = row.draft_length != 0;
  const auto if_drafts = [drafts](const std::string& text) { return drafts ? text : "–"; };
  const auto if_predicted = [&row](const std::string& text) {
    return row.has_predictions() ? text : "–";
  };
  return {row.mode,
          drafts ? DrafterLabel(row.drafter) : "–",
          DraftSizeName({row.drafter, row.draft_length, row.max_tree_nodes}),
          Number(row.totals.TokensPerSecond(), 0),
          drafts ? Number(row.speedup.ratio, 2) + "×" : "1×",
          if_drafts(IntervalCell(row.speedup)),
          Number(row.totals.TokensPerPass(), 2),
          if_drafts(Number(100 * row.totals.AcceptanceRate(), 0) + " %"),
          if_drafts(Number(row.totals.Alpha(), 2)),
          if_drafts(Number(1e3 * PerRound(seconds.draft, rounds), 2)),
          Number(1e3 * PerRound(seconds.transfer, rounds), 2),
          Number(1e3 * PerRound(seconds.verify, rounds), 2),
          Number(1e3 * PerRound(seconds.router, rounds), 2),
          if_drafts(Number(row.cost_ratio, 2)),
          if_drafts(Number(row.rows_cost, 2)),
          if_predicted(Number(row.predicted_speedup, 2) + "×"),
          if_predicted(Number(row.predicted_speedup_measured, 2) + "×"),
          if_predicted(row.operations_factor ? Number(*row.operations_factor, 2) + "×" : "?")};
}

}  // namespace

std::string DraftSizeName(const BenchCase& measured) {
  std::string name =
      measured.draft_length == kAutoDraftLength ? "auto" : std::to_string(measured.draft_length);
  if (measured.max_tree_nodes.has_value()) absl::StrAppend(&name, "/", *measured.max_tree_nodes);
  return name;
}

BenchRow::BenchRow(const BenchCell& cell, const RunTotals& plain,
                   std::optional<double> operations_ratio)
    : mode(cell.mode),
      drafter(cell.measured.drafter),
      draft_length(cell.measured.draft_length),
      max_tree_nodes(cell.measured.max_tree_nodes),
      totals(cell.totals),
      speedup(MeanRatio(cell.speedups)) {
  if (draft_length == 0 || totals.drafted() == 0) return;
  const double plain_step = PerRound(plain.seconds().verify, plain.rounds());
  const TimeSplit& seconds = totals.seconds();
  costs.plain_round = PerRound(plain.seconds().Total(), plain.rounds());
  costs.draft_step = PerRound(seconds.draft, totals.drafted());
  costs.verify_round =
      PerRound(seconds.verify - static_cast<double>(totals.plain_rounds()) * plain_step,
               totals.draft_rounds());
  costs.round_overhead = PerRound(seconds.transfer + seconds.router, totals.rounds());
  if (plain_step > 0) {
    cost_ratio = costs.draft_step / plain_step;
    rows_cost = costs.verify_round / plain_step;
  }
  if (!has_predictions()) return;
  const double alpha = totals.Alpha();
  predicted_speedup = PredictedSpeedup(alpha, draft_length, cost_ratio);
  predicted_speedup_measured = PredictedSpeedup(alpha, draft_length, costs);
  if (operations_ratio) {
    operations_factor = OperationsFactor(alpha, draft_length, *operations_ratio);
  }
}

std::vector<BenchRow> MakeRows(const std::vector<BenchCell>& cells,
                               std::optional<double> operations_ratio) {
  std::vector<BenchRow> rows;
  for (const BenchCell& cell : cells) {
    const auto plain = std::find_if(cells.begin(), cells.end(), [&cell](const BenchCell& other) {
      return other.mode == cell.mode && other.measured.draft_length == 0;
    });
    if (plain != cells.end()) rows.emplace_back(cell, plain->totals, operations_ratio);
  }
  return rows;
}

std::string RenderTable(const std::vector<BenchRow>& rows, const BenchContext& context,
                        const Palette& palette) {
  const v1::ServerInfo& server = context.server;
  std::string text = palette.Bold(server.model()) + " with the drafter " +
                     (server.draft_model().empty() ? "–" : palette.Bold(server.draft_model())) +
                     ", " + server.backend() + ", " + context.hardware + "\n" +
                     palette.Dim(absl::StrFormat("%d prompts, %d tokens a run, one stream",
                                                 context.prompts, context.max_tokens)) +
                     "\n\n";
  text +=
      palette.Dim(TableLine({"", "", "", "", "", "", "tokens", "accepted", "", "draft", "transfer",
                             "verify", "router", "", "K+1", "theorem", "measured", "ops"},
                            kColumnWidths)) +
      "\n";
  text += palette.Dim(TableLine({"mode", "drafter", "K", "tokens/s", "speedup", "95 % interval",
                                 "per pass", "/drafted", "α", "ms/round", "ms/round", "ms/round",
                                 "ms/round", "c", "rows", "3.8", "costs", "factor"},
                                kColumnWidths)) +
          "\n";
  const std::string* mode = nullptr;
  for (const BenchRow& row : rows) {
    if (mode != nullptr && *mode != row.mode) text += "\n";
    mode = &row.mode;
    const std::string line = TableLine(RowCells(row), kColumnWidths);
    text += (row.speedup.is_shown() && row.speedup.low > 1 ? palette.Good(line) : line) + "\n";
  }
  text += "\n";
  text +=
      palette.Dim(
          "speedup: ratio to plain decoding's tokens/s in the same pair, geometric mean and t "
          "interval (from 5 pairs on: --pairs).\n"
          "c: time of a draft step over a plain target step. K+1 rows: time of a verify pass "
          "over a plain step.\n"
          "theorem 3.8: prediction from α and c. measured costs: prediction with the measured "
          "K+1 rows and overhead.\n"
          "ops factor: ratio to plain decoding's arithmetic operations, theorem 3.11 (Leviathan "
          "et al. 2023).") +
      "\n";
  return text;
}

nlohmann::json ToJson(const std::vector<BenchRow>& rows, const BenchContext& context) {
  nlohmann::json json = {{"version", context.server.version()},
                         {"model", context.server.model()},
                         {"draft_model", context.server.draft_model()},
                         {"backend", context.server.backend()},
                         {"ring_transport", context.server.ring_transport()},
                         {"hardware", context.hardware},
                         {"command", context.command_line},
                         {"prompts", context.prompts},
                         {"max_tokens", context.max_tokens},
                         {"rows", nlohmann::json::array()}};
  for (const BenchRow& row : rows) {
    const RunTotals& totals = row.totals;
    const TimeSplit& seconds = totals.seconds();
    nlohmann::json cell = {
        {"mode", row.mode},
        {"drafter",
         row.draft_length == 0 ? nlohmann::json() : nlohmann::json(DrafterLabel(row.drafter))},
        {"draft_length", row.draft_length == kAutoDraftLength ? nlohmann::json("auto")
                                                              : nlohmann::json(row.draft_length)},
        {"tokens", totals.tokens()},
        {"tokens_per_second", totals.TokensPerSecond()},
        {"tokens_per_pass", totals.TokensPerPass()},
        {"rounds", totals.rounds()},
        {"round_seconds",
         {{"draft", PerRound(seconds.draft, totals.rounds())},
          {"transfer", PerRound(seconds.transfer, totals.rounds())},
          {"verify", PerRound(seconds.verify, totals.rounds())},
          {"router", PerRound(seconds.router, totals.rounds())}}}};
    if (row.max_tree_nodes.has_value()) cell["max_tree_nodes"] = *row.max_tree_nodes;
    if (row.draft_length != 0) {
      cell["drafted_tokens"] = totals.drafted();
      cell["accepted_tokens"] = totals.accepted();
      cell["tested_tokens"] = totals.tested();
      cell["acceptance_rate"] = totals.AcceptanceRate();
      cell["alpha"] = totals.Alpha();
      cell["alpha_per_position"] = totals.AlphaPerPosition();
      cell["speedup"] = row.speedup.ratio;
      cell["speedup_95_percent"] = nullptr;  // null: too few pairs
      if (row.speedup.is_shown()) {
        cell["speedup_95_percent"] = {row.speedup.low, row.speedup.high};
      }
      cell["pairs"] = row.speedup.pairs;
      cell["plain_round_seconds"] = row.costs.plain_round;
      cell["draft_step_seconds"] = row.costs.draft_step;
      cell["verify_round_seconds"] = row.costs.verify_round;
      cell["round_overhead_seconds"] = row.costs.round_overhead;
      cell["cost_ratio"] = row.cost_ratio;
      cell["rows_cost"] = row.rows_cost;
    }
    if (row.has_predictions()) {
      cell["predicted_speedup_theorem_3_8"] = row.predicted_speedup;
      cell["predicted_speedup_measured_costs"] = row.predicted_speedup_measured;
      cell["operations_factor_theorem_3_11"] =
          row.operations_factor ? nlohmann::json(*row.operations_factor) : nlohmann::json();
    }
    json["rows"].push_back(std::move(cell));
  }
  return json;
}

}  // namespace tandem::cli
