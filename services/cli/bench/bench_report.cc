#include "services/cli/bench/bench_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/supervisor/lookup_names.h"
#include "services/cli/terminal/table.h"

namespace tandem::cli {

namespace {

double PerRound(double seconds, int64_t rounds) {
  return rounds > 0 ? seconds / static_cast<double>(rounds) : 0;
}

constexpr size_t kDrafterColumn = 1;

// Returns the widths of the columns. That of the drafters has room for each label.
std::vector<size_t> ColumnWidths(const std::vector<BenchRow>& rows) {
  std::vector<size_t> widths = {7, 10, 8, 10, 9, 15, 10, 10, 6, 10, 10, 10, 10, 6, 6, 8, 9, 10, 8};
  for (const BenchRow& row : rows) {
    const std::string label = DrafterLabel(row.measured);
    const auto room = 1 + std::count_if(label.begin(), label.end(), [](char c) {
                        return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
                      });
    widths[kDrafterColumn] = std::max(widths[kDrafterColumn], static_cast<size_t>(room));
  }
  return widths;
}

std::string IntervalCell(const RatioInterval& speedup) {
  if (!speedup.is_shown()) return "few pairs";
  return Number(speedup.low, 2) + " – " + Number(speedup.high, 2);
}

std::string NameOf(const std::string& drafter) { return drafter.empty() ? "auto" : drafter; }

std::vector<std::string> RowCells(const BenchRow& row) {
  const TimeSplit& seconds = row.totals.seconds();
  const int64_t rounds = row.totals.rounds();
  const bool drafts = row.measured.draft_length != 0;
  const auto if_drafts = [drafts](const std::string& text) { return drafts ? text : "–"; };
  const auto if_predicted = [&row](const std::string& text) {
    return row.has_predictions() ? text : "–";
  };
  return {row.mode,
          DrafterLabel(row.measured),
          DraftSizeName(row.measured),
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
          if_drafts(Number(row.limit, 2) + "×"),
          if_predicted(Number(row.predicted_speedup, 2) + "×"),
          if_predicted(Number(row.predicted_speedup_measured, 2) + "×"),
          if_predicted(row.operations_factor ? Number(*row.operations_factor, 2) + "×" : "?")};
}

// Returns a line for each row with drafts: the share of the tested tokens that was accepted at each
// position of a draft.
std::string AcceptanceLines(const std::vector<BenchRow>& rows, std::span<const size_t> widths) {
  std::string text;
  for (const BenchRow& row : rows) {
    const std::vector<double> alphas = row.totals.AlphaPerPosition();
    if (row.measured.draft_length == 0 || alphas.empty()) continue;
    text += TableLine({row.mode, DrafterLabel(row.measured), DraftSizeName(row.measured)},
                      widths.first(3));
    for (const double alpha : alphas) absl::StrAppend(&text, "  ", Number(alpha, 2));
    text += "\n";
  }
  return text;
}

}  // namespace

std::string DrafterLabel(const BenchCase& measured) {
  const bool has_other_name =
      !measured.heads.empty() && measured.heads != measured.drafter && measured.heads != kNoHeads;
  const std::string heads = has_other_name ? " (" + measured.heads + ")" : "";
  return (measured.draft_length == 0 ? "–" : NameOf(measured.drafter)) + heads;
}

std::string DraftSizeName(const BenchCase& measured) {
  std::string name =
      measured.draft_length == kAutoDraftLength ? "auto" : std::to_string(measured.draft_length);
  if (measured.max_tree_nodes.has_value()) absl::StrAppend(&name, "/", *measured.max_tree_nodes);
  return name;
}

BenchRow::BenchRow(const BenchCell& cell, const RunTotals& plain,
                   std::optional<double> operations_ratio)
    : mode(cell.mode),
      measured(cell.measured),
      totals(cell.totals),
      speedup(MeanRatio(cell.speedups)) {
  if (measured.draft_length == 0) return;
  const double plain_step = PerRound(plain.seconds().verify, plain.rounds());
  const TimeSplit& seconds = totals.seconds();
  const double pass = PerRound(seconds.draft + seconds.verify, totals.rounds());
  if (pass > 0) limit = totals.TokensPerPass() * plain_step / pass;
  if (totals.drafted() == 0) return;
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
  int length = measured.draft_length;
  const bool is_heads = IsSelfDrafter(measured.drafter);
  if (is_heads && totals.draft_rounds() > 0) {
    const auto mean = std::lround(static_cast<double>(totals.drafted()) /
                                  static_cast<double>(totals.draft_rounds()));
    length = std::min(length, static_cast<int>(mean));
  }
  predicted_speedup = PredictedSpeedup(alpha, length, cost_ratio);
  predicted_speedup_measured = PredictedSpeedup(alpha, length, costs);
  if (operations_ratio && !is_heads) {
    operations_factor = OperationsFactor(alpha, length, *operations_ratio);
  }
}

bool BenchRow::has_predictions() const {
  return measured.draft_length > 0 && measured.max_tree_nodes.value_or(0) == 0 &&
         !IsLookup(measured.drafter);
}

std::vector<BenchRow> MakeRows(const std::vector<BenchCell>& cells,
                               std::optional<double> operations_ratio) {
  std::vector<BenchRow> rows;
  for (const BenchCell& cell : cells) {
    const auto plain = std::find_if(cells.begin(), cells.end(), [&cell](const BenchCell& other) {
      return other.mode == cell.mode && other.measured.heads == cell.measured.heads &&
             other.measured.draft_length == 0;
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
  const std::vector<size_t> widths = ColumnWidths(rows);
  text +=
      palette.Dim(TableLine({"", "", "", "", "", "", "tokens", "accepted", "", "draft", "transfer",
                             "verify", "router", "", "K+1", "", "theorem", "measured", "ops"},
                            widths)) +
      "\n";
  text += palette.Dim(TableLine({"mode", "drafter", "K", "tokens/s", "speedup", "95 % interval",
                                 "per pass", "/drafted", "α", "ms/round", "ms/round", "ms/round",
                                 "ms/round", "c", "rows", "limit", "3.8", "costs", "factor"},
                                widths)) +
          "\n";
  const BenchRow* before = nullptr;
  for (const BenchRow& row : rows) {
    const bool begins_anew = before != nullptr && (before->mode != row.mode ||
                                                   before->measured.heads != row.measured.heads);
    if (begins_anew) text += "\n";
    before = &row;
    const std::string line = TableLine(RowCells(row), widths);
    text += (row.speedup.is_shown() && row.speedup.low > 1 ? palette.Good(line) : line) + "\n";
  }
  text += "\n" + palette.Dim("α by position:") + "\n" + AcceptanceLines(rows, widths) + "\n";
  text +=
      palette.Dim(
          "speedup: ratio to plain decoding's tokens/s in the same pair, geometric mean and t "
          "interval (from 5 pairs on: --pairs).\n"
          "c: time of a draft step over a plain target step. K+1 rows: time of a verify pass "
          "over a plain step.\n"
          "limit: the speedup if messages and the router took no time, in plain rounds too.\n"
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
    const BenchCase& measured = row.measured;
    const TimeSplit& seconds = totals.seconds();
    nlohmann::json cell = {
        {"mode", row.mode},
        {"drafter",
         measured.draft_length == 0 ? nlohmann::json() : nlohmann::json(NameOf(measured.drafter))},
        {"draft_length", measured.draft_length == kAutoDraftLength
                             ? nlohmann::json("auto")
                             : nlohmann::json(measured.draft_length)},
        {"tokens", totals.tokens()},
        {"tokens_per_second", totals.TokensPerSecond()},
        {"tokens_per_pass", totals.TokensPerPass()},
        {"rounds", totals.rounds()},
        {"round_seconds",
         {{"draft", PerRound(seconds.draft, totals.rounds())},
          {"transfer", PerRound(seconds.transfer, totals.rounds())},
          {"verify", PerRound(seconds.verify, totals.rounds())},
          {"router", PerRound(seconds.router, totals.rounds())}}}};
    if (measured.max_tree_nodes.has_value()) cell["max_tree_nodes"] = *measured.max_tree_nodes;
    if (!measured.heads.empty()) cell["heads"] = measured.heads;
    if (measured.draft_length != 0) {
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
      cell["limit"] = row.limit;
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
