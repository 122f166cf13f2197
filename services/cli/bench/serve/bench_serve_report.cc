#include "services/cli/bench/serve/bench_serve_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "services/cli/bench/predictions.h"
#include "services/cli/bench/serve/percentiles.h"
#include "services/cli/bench/share.h"
#include "services/cli/terminal/table.h"

namespace tandem::cli {

namespace {

// A resource that is busy for this share of the time is the limit. The rest of its time are the
// gaps between rounds.
constexpr double kSaturated = 0.85;

constexpr size_t kLoadColumnWidths[] = {9, 13, 6, 7, 9, 8, 16, 8, 8, 8, 8,
                                        8, 8,  8, 7, 6, 7, 7,  7, 7, 7};

int64_t NumFailures(const LoadResult& result) {
  int64_t sum = 0;
  for (const auto& [status, count] : result.failures) sum += count;
  return sum;
}

std::string StepName(const ServeCell& cell) {
  return cell.clients > 0 ? std::to_string(cell.clients) : absl::StrFormat("%g/s", cell.rate);
}

// Adds three cells in milliseconds: p50, p95, p99.
void AddMilliseconds(const std::vector<double>& seconds, std::vector<std::string>& cells) {
  const Percentiles of = PercentilesOf(seconds);
  for (double value : {of.p50, of.p95, of.p99}) {
    cells.push_back(of.count == 0 ? "–" : Number(1e3 * value, value < 0.1 ? 2 : 0));
  }
}

std::string Percent(double share) { return Number(100 * share, 0); }

std::vector<std::string> RowCells(const ServeCell& cell, int cores) {
  const LoadResult& result = cell.result;
  const Utilization used = UtilizationOf(cell, cores);
  const RatioInterval ratio = MeanRatio(cell.ratios);
  std::vector<std::string> cells = {
      StepName(cell),
      cell.mode,
      cell.drafting,
      std::to_string(result.finished),
      Number(Share(static_cast<double>(result.tokens), result.wall_seconds), 0),
      Number(Share(static_cast<double>(result.finished), result.wall_seconds), 2),
      ratio.pairs == 0    ? "–"
      : !ratio.is_shown() ? Number(ratio.ratio, 2)
                          : absl::StrFormat("%.2f %.2f–%.2f", ratio.ratio, ratio.low, ratio.high)};
  AddMilliseconds(result.first_token, cells);
  AddMilliseconds(result.time_per_token, cells);
  cells.push_back(Number(1e3 * PercentilesOf(result.queue).p50, 1));
  cells.push_back(result.totals.drafted() > 0 ? Percent(result.totals.AcceptanceRate()) : "–");
  cells.push_back(Number(result.totals.TokensPerPass(), 2));
  for (double share : {used.verify, used.draft, used.cores_busy, used.client}) {
    cells.push_back(Percent(share));
  }
  cells.push_back(std::to_string(NumFailures(result)));
  return cells;
}

nlohmann::json ToJson(const std::vector<double>& seconds) {
  const Percentiles of = PercentilesOf(seconds);
  return {{"p50", of.p50},   {"p95", of.p95}, {"p99", of.p99},
          {"mean", of.mean}, {"max", of.max}, {"count", of.count}};
}

// Returns the number of rows that the target computed: prompts, drafts, and one more token in each
// round.
double TargetRows(const LoadResult& result) {
  return static_cast<double>(result.prompt_tokens - result.cached_prompt_tokens +
                             result.totals.drafted() + result.totals.rounds());
}

nlohmann::json ToJson(const ServeCell& cell, const ServeContext& context) {
  const LoadResult& result = cell.result;
  const RunTotals& totals = result.totals;
  const Utilization used = UtilizationOf(cell, context.cores);
  nlohmann::json json = {
      {"mode", cell.mode},
      {"drafting", cell.drafting},
      {"runs", cell.runs},
      {"runs_set_aside", cell.set_aside},
      {"wall_seconds", result.wall_seconds},
      {"requests", result.finished},
      {"tokens", result.tokens},
      {"tokens_per_second", Share(static_cast<double>(result.tokens), result.wall_seconds)},
      {"requests_per_second", Share(static_cast<double>(result.finished), result.wall_seconds)},
      {"most_open", result.most_open},
      {"cancelled", result.canceled},
      {"failures", result.failures},
      {"prompt_tokens", result.prompt_tokens},
      {"cached_prompt_tokens", result.cached_prompt_tokens},
      {"time_to_first_token_seconds", ToJson(result.first_token)},
      {"time_per_token_seconds", ToJson(result.time_per_token)},
      {"message_gap_seconds", ToJson(result.gaps)},
      {"queue_seconds", ToJson(result.queue)},
      {"refused_seconds", ToJson(result.refused)},
      {"drafted_tokens", totals.drafted()},
      {"acceptance_rate", totals.AcceptanceRate()},
      {"alpha", totals.Alpha()},
      {"tokens_per_pass", totals.TokensPerPass()},
      {"utilization",
       {{"verify", used.verify},
        {"draft", used.draft},
        {"transfer", used.transfer},
        {"router", used.router},
        {"cores_busy", used.cores_busy},
        {"client", used.client}}},
      {"cpu_seconds",
       {{"client", cell.cpu.own}, {"machine", cell.cpu.machine}, {"stolen", cell.cpu.stolen}}},
      {"limit", LimitOf(cell, context)}};
  for (const auto& [name, seconds] : cell.cpu.children) json["cpu_seconds"][name] = seconds;
  if (cell.clients > 0) {
    json["clients"] = cell.clients;
  } else {
    json["rate"] = cell.rate;
  }
  json["target_rows_per_second"] = Share(TargetRows(result), result.wall_seconds);
  if (context.target_weights) {
    json["target_flops"] =
        2 * *context.target_weights * Share(TargetRows(result), result.wall_seconds);
  }
  if (const RatioInterval ratio = MeanRatio(cell.ratios); ratio.pairs > 0) {
    json["ratio_to_off"] = {
        {"mean", ratio.ratio}, {"low", nullptr}, {"high", nullptr}, {"pairs", ratio.pairs}};
    if (ratio.is_shown()) {
      json["ratio_to_off"]["low"] = ratio.low;
      json["ratio_to_off"]["high"] = ratio.high;
    }
    json["ratios"] = cell.ratios;
  }
  return json;
}

}  // namespace

Utilization UtilizationOf(const ServeCell& cell, int cores) {
  const TimeSplit& seconds = cell.result.totals.seconds();
  const double decode = seconds.Total();
  const double all_cores = cell.result.wall_seconds * cores;
  return {.verify = Share(seconds.verify, decode),
          .draft = Share(seconds.draft, decode),
          .transfer = Share(seconds.transfer, decode),
          .router = Share(seconds.router, decode),
          .cores_busy = Share(cell.cpu.machine, all_cores),
          .client = Share(cell.cpu.own, all_cores)};
}

std::string LimitOf(const ServeCell& cell, const ServeContext& context) {
  const Utilization used = UtilizationOf(cell, context.cores);
  const double computing = used.verify + used.draft;
  std::string cause;
  if (computing >= kSaturated) {
    cause = "compute: a worker computes almost all the time";
  } else if (used.cores_busy >= kSaturated) {
    cause = "cores: all are busy, also with the work of the router and the clients";
  } else if (cell.clients == 0 || cell.clients > context.server.max_slots()) {
    cause = "slots or arrivals: neither the workers nor the cores are always busy";
  } else {
    cause = "latency: the time between two passes (messages, the router, waiting for other slots)";
  }
  return absl::StrFormat(
      "%s (verifier %s %% and drafter %s %% of the decoding time, cores %s %% busy)", cause,
      Percent(used.verify), Percent(used.draft), Percent(used.cores_busy));
}

std::string RenderServeTable(const std::vector<ServeCell>& cells, const ServeContext& context,
                             const Palette& palette) {
  const v1::ServerInfo& server = context.server;
  std::string text = palette.Bold(server.model()) + " with the drafter " +
                     (server.draft_model().empty() ? "–" : palette.Bold(server.draft_model())) +
                     ", " + server.backend() + ", " + context.hardware + "\n" +
                     palette.Dim(absl::StrFormat("%d slots of %d tokens", server.max_slots(),
                                                 server.max_context_tokens())) +
                     "\n\n";
  const auto header = [&](const std::vector<std::string>& names) {
    text += palette.Dim(TableLine(names, kLoadColumnWidths)) + "\n";
  };
  header({"",      "",       "",       "",      "",      "",       "over off",
          "first", "token",  "ms",     "per",   "token", "ms",     "queue",
          "acc.",  "tokens", "verify", "draft", "cores", "client", ""});
  header({"clients", "mode",  "draft", "done", "tokens/s", "req/s", "95 %",
          "p50",     "p95",   "p99",   "p50",  "p95",      "p99",   "ms",
          "%",       "/pass", "%",     "%",    "%",        "%",     "failed"});
  std::string notes;
  const ServeCell* before = nullptr;
  for (const ServeCell& cell : cells) {
    if (cell.runs == 0) continue;
    if (before != nullptr && before->mode != cell.mode) text += "\n";
    before = &cell;
    const std::string line = TableLine(RowCells(cell, context.cores), kLoadColumnWidths);
    text += (NumFailures(cell.result) > 0 ? palette.Bad(line) : line) + "\n";
    if (cell.set_aside > 0) {
      notes += absl::StrFormat(
          "%s, %s, %s: %d runs set aside: other processes or machines took too much processor "
          "time\n",
          StepName(cell), cell.mode, cell.drafting, cell.set_aside);
    }
    for (const auto& [status, count] : cell.result.failures) {
      notes += absl::StrFormat("%s, %s, %s: %d × %s\n", StepName(cell), cell.mode, cell.drafting,
                               count, status);
    }
    if (const Percentiles refused = PercentilesOf(cell.result.refused); refused.count > 0) {
      notes += absl::StrFormat("%s, %s, %s: refused after %s ms (p50), %s ms (p99)\n",
                               StepName(cell), cell.mode, cell.drafting,
                               Number(1e3 * refused.p50, 2), Number(1e3 * refused.p99, 2));
    }
  }
  text += "\n" + notes;
  if (before != nullptr) {
    text += "limit at " + StepName(*before) + (before->clients > 0 ? " clients" : "") + ": " +
            LimitOf(*before, context) + "\n";
  }
  if (context.interrupted) text += "interrupted: the table holds the measurements until then\n";
  text += palette.Dim(
              "per token: time of each request from its first token to its last, by the tokens "
              "after the first.\n"
              "verify, draft: share of the streams' decoding time in which that worker computed. "
              "cores: share of all cores' time\nthat was busy. client: the part of this process.") +
          "\n";
  return text;
}

nlohmann::json ServeToJson(const std::vector<ServeCell>& cells, const ServeContext& context) {
  nlohmann::json json = {{"version", context.server.version()},
                         {"model", context.server.model()},
                         {"draft_model", context.server.draft_model()},
                         {"backend", context.server.backend()},
                         {"hardware", context.hardware},
                         {"cores", context.cores},
                         {"max_slots", context.server.max_slots()},
                         {"max_context_tokens", context.server.max_context_tokens()},
                         {"command", context.command_line},
                         {"interrupted", context.interrupted},
                         {"rows", nlohmann::json::array()}};
  for (const ServeCell& cell : cells) {
    if (cell.runs > 0) json["rows"].push_back(ToJson(cell, context));
  }
  return json;
}

}  // namespace tandem::cli
