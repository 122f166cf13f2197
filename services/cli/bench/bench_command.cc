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
                                int draft_length, const std::string& prompt, int pair) {
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
  speculation->set_enabled(draft_length != 0);
  if (draft_length > 0) speculation->set_draft_length(draft_length);
  return request;
}

// Each pair runs plain decoding and every draft length on one prompt. The order changes from pair
// to pair, so that neither a slow drift of the machine nor a position in the order favors a cell.
absl::StatusOr<std::vector<BenchCell>> Measure(const BenchOptions& options,
                                               const std::vector<std::string>& prompts,
                                               GenerationClient& client, Console& console) {
  std::vector<int> lengths = options.draft_lengths;
  lengths.push_back(0);
  // Plain decoding comes first, and the server's choice comes last.
  std::sort(lengths.begin(), lengths.end(),
            [](int a, int b) { return static_cast<unsigned>(a) < static_cast<unsigned>(b); });
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());

  Progress progress(static_cast<int>((options.pairs + 1) * lengths.size() * options.modes.size()),
                    console);
  std::vector<BenchCell> cells;
  for (const std::string& mode : options.modes) {
    const size_t first = cells.size();
    for (int length : lengths) cells.push_back({mode, length, {}, {}});
    for (int pair = -1; pair < options.pairs; ++pair) {  // -1 warms up and does not count
      const std::string& prompt = prompts[std::max(pair, 0) % prompts.size()];
      std::vector<double> rates(lengths.size());
      for (size_t turn = 0; turn < lengths.size(); ++turn) {
        const size_t i = (turn + std::max(pair, 0)) % lengths.size();
        progress.Step(absl::StrFormat("%s, draft length %s", mode, DraftLengthName(lengths[i])));
        TANDEM_ASSIGN_OR_RETURN(
            const v1::GenerateResponse response,
            client.Generate(MakeRequest(options, mode, lengths[i], prompt, pair),
                            [](const v1::GenerateResponse&) { return true; }));
        if (pair < 0) continue;
        cells[first + i].totals.Add(response.completion());
        rates[i] = TokensPerSecond(response.completion());
      }
      for (size_t i = 1; pair >= 0 && i < lengths.size(); ++i) {
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
  if (!info->drafter_attached()) {
    return PrintServerError(FailedPrecondition("the server has no drafter: nothing to compare"),
                            console);
  }

  std::optional<double> operations_ratio;
  const ModelFolders& models = (*session)->models();
  if (!models.draft.empty()) {
    const auto draft = WeightsPerToken(models.draft);
    const auto target = WeightsPerToken(models.target);
    if (draft.ok() && target.ok()) operations_ratio = *draft / *target;
  }

  const auto cells = Measure(options, *prompts, client, console);
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
