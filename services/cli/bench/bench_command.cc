#include "services/cli/bench/bench_command.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/bench/bench_report.h"
#include "services/cli/bench/bench_support.h"
#include "services/cli/bench/model_operations.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

v1::GenerateRequest MakeRequest(const BenchOptions& options, const std::string& mode,
                                const BenchCase& measured, const std::string& prompt, int pair) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  v1::SamplingParams* sampling = request.mutable_sampling_params();
  sampling->set_max_tokens(options.max_tokens);
  sampling->set_ignore_eos(true);
  if (mode == "greedy") {
    sampling->set_temperature(0);
  } else {
    sampling->set_temperature(options.temperature);
    sampling->set_seed(options.seed + pair);
  }
  v1::SpeculationParams* speculation = request.mutable_speculation();
  speculation->set_reproducible(false);  // a seed alone would turn it on
  speculation->set_enabled(measured.draft_length != 0);
  speculation->set_drafter(measured.drafter);
  if (mode != "greedy" && options.draft_temperature.has_value()) {
    speculation->mutable_draft_sampling()->set_temperature(*options.draft_temperature);
  }
  if (measured.draft_length > 0) speculation->set_draft_length(measured.draft_length);
  if (measured.max_tree_nodes.has_value()) {
    speculation->set_max_tree_nodes(*measured.max_tree_nodes);
  }
  return request;
}

// Returns the drafters to compare, as requests name them.
std::vector<std::string> DraftersOf(const BenchOptions& options, const v1::ServerInfo& info) {
  std::vector<std::string> drafters;
  const auto add = [&](const std::string& name) {
    if (std::find(drafters.begin(), drafters.end(), name) == drafters.end()) {
      drafters.push_back(name);
    }
  };
  for (const std::string& name : options.drafters) {
    if (name == "all") {
      for (const std::string& known : info.drafters()) {
        // The prompts of a benchmark predict nothing, and a single draft model has two names.
        const bool has_two_names = info.draft_models_size() <= 1 && known == info.draft_model();
        if (known != "prediction" && !has_two_names) add(known);
      }
    }
    if (name == "all" || name == "auto") add("");
    if (name != "all" && name != "auto") add(name);
  }
  if (drafters.empty()) drafters.emplace_back();
  return drafters;
}

// Plain decoding comes first. Each drafter has the lengths in ascending order, and the server's
// choice of a length comes last.
std::vector<BenchCase> CasesOf(const BenchOptions& options, const v1::ServerInfo& info) {
  std::vector<int> lengths = options.draft_lengths;
  std::sort(lengths.begin(), lengths.end(),
            [](int a, int b) { return static_cast<unsigned>(a) < static_cast<unsigned>(b); });
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  std::vector<BenchCase> cases = {{"", 0}};
  for (const std::string& drafter : DraftersOf(options, info)) {
    for (const int length : lengths) {
      if (length == 0) continue;
      if (options.max_tree_nodes.empty()) cases.push_back({drafter, length});
      for (const int nodes : options.max_tree_nodes) cases.push_back({drafter, length, nodes});
    }
  }
  return cases;
}

// Each pair runs plain decoding and every other case on one prompt. The order changes from pair to
// pair, so that neither a slow drift of the machine nor a position in the order favors a cell.
absl::StatusOr<std::vector<BenchCell>> Measure(const BenchOptions& options,
                                               const std::vector<BenchCase>& cases,
                                               const std::vector<std::string>& prompts,
                                               GenerationClient& client, Console& console) {
  Progress progress(static_cast<int>((options.pairs + 1) * cases.size() * options.modes.size()),
                    console);
  std::vector<BenchCell> cells;
  for (const std::string& mode : options.modes) {
    const size_t first = cells.size();
    for (const BenchCase& measured : cases) cells.push_back({mode, measured, {}, {}});
    for (int pair = -1; pair < options.pairs; ++pair) {  // -1 warms up and does not count
      const std::string& prompt = prompts[std::max(pair, 0) % prompts.size()];
      std::vector<double> rates(cases.size());
      for (size_t turn = 0; turn < cases.size(); ++turn) {
        const size_t i = (turn + std::max(pair, 0)) % cases.size();
        progress.Step(absl::StrFormat("%s, %s, draft length %s", mode,
                                      cases[i].drafter.empty() ? "auto" : cases[i].drafter,
                                      DraftSizeName(cases[i])));
        TANDEM_ASSIGN_OR_RETURN(const v1::GenerateResponse response,
                                client.Generate(MakeRequest(options, mode, cases[i], prompt, pair),
                                                [](const v1::GenerateResponse&) { return true; }));
        if (pair < 0) continue;
        cells[first + i].totals.Add(response.completion());
        rates[i] = TokensPerSecond(response.completion());
      }
      for (size_t i = 1; pair >= 0 && i < cases.size(); ++i) {
        if (rates[0] > 0 && rates[i] > 0) {
          cells[first + i].speedups.push_back(rates[i] / rates[0]);
        }
      }
    }
  }
  return cells;
}

}  // namespace

int Bench(const BenchOptions& options, const std::string& command_line, Console& console) {
  const auto prompts = ReadPrompts(options.prompts);
  if (!prompts.ok()) return PrintError(prompts.status(), console);
  std::ofstream json_file;
  if (!options.json.empty()) {
    json_file.open(options.json);
    if (!json_file) {
      return PrintError(InvalidArgument("--json: cannot write " + options.json), console);
    }
  }
  auto session = ServerSession::Open(options.session, console);
  if (!session.ok()) return PrintError(session.status(), console);
  GenerationClient& client = (*session)->client();
  const auto info = client.GetServerInfo();
  if (!info.ok()) return PrintServerError(info.status(), console);
  if (!info->drafter_attached() && options.drafters.empty()) {
    return PrintServerError(
        FailedPrecondition("the server has no draft model: nothing to compare (--drafters names "
                           "drafters that need none)"),
        console);
  }

  std::optional<double> operations_ratio;
  const ModelFolders& models = (*session)->models();
  if (models.drafts.size() == 1) {
    const auto draft = WeightsPerToken(models.drafts.front().folder);
    const auto target = WeightsPerToken(models.target.folder);
    if (draft.ok() && target.ok()) operations_ratio = *draft / *target;
  }

  const auto cells = Measure(options, CasesOf(options, *info), *prompts, client, console);
  if (!cells.ok()) return PrintServerError(cells.status(), console);
  const std::vector<BenchRow> rows = MakeRows(*cells, operations_ratio);
  const BenchContext context = {.server = *info,
                                .hardware = Hardware(),
                                .command_line = command_line,
                                .prompts = static_cast<int>(prompts->size()),
                                .max_tokens = options.max_tokens};
  console.out << RenderTable(rows, context,
                             Palette(WantsColor(options.color, console.out_is_terminal)))
              << std::flush;
  if (json_file.is_open()) {
    json_file << ToJson(rows, context).dump(2) << "\n";
    json_file.close();
    if (!json_file) {
      return PrintServerError(Unavailable("--json: writing " + options.json + " failed"), console);
    }
  }
  return kExitOk;
}

}  // namespace tandem::cli
